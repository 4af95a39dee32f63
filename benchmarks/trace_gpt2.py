"""Time and memory of tracing a model of GPT-2-small's shape, against the plain forward and stock eager attention.

    python benchmarks/trace_gpt2.py [tokens ...] [--repeats 3] [--skip-eager]

Every row is measured in a process of its own. CPU time is the smallest of the repeats after a warm run; memory is
the peak above what the process held before the forward. Ratios are to the plain SDPA forward of the same run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

WAYS = ("plain", "trace", "trace + statistics", "eager + attentions")


def run_of(way: str, tokens: int) -> Callable[[int], object]:
    """Return a function that does one run over so many tokens."""
    import torch
    import transformers

    import attnviz

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    eager = way.startswith("eager")
    config = transformers.GPT2Config(n_positions=max(tokens, 1024))
    model = transformers.AutoModel.from_config(config, attn_implementation="eager" if eager else "sdpa").eval()
    ids = torch.randint(0, config.vocab_size, (1, tokens))

    def plain(length: int) -> object:
        with torch.no_grad():
            return model(input_ids=ids[:, :length], use_cache=False, output_attentions=eager)

    def trace(length: int) -> object:
        found = attnviz.trace_model(model, {"input_ids": ids[:, :length]})
        if way.endswith("statistics"):
            found.statistics()
            found.thumbnails()
        return found

    return trace if way.startswith("trace") else plain


def resident() -> int:
    """Return the bytes this process holds in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def peak_during(run: Callable[[], object]) -> int:
    """Return the most bytes held during a run, above those held before."""
    before, most, done = resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    kept = run()
    most = max(most, resident())
    done.set()
    watcher.join()
    del kept
    return most - before


def measure(way: str, tokens: int, repeats: int) -> dict[str, float]:
    """Return CPU seconds and peak bytes of one way."""
    import gc

    run = run_of(way, tokens)
    run(64)
    gc.collect()
    peak, seconds = peak_during(lambda: run(tokens)), []
    for _ in range(repeats):
        gc.collect()
        start = time.process_time()
        run(tokens)
        seconds.append(time.process_time() - start)
    return {"seconds": min(seconds, default=float("nan")), "peak": peak}


def measured_apart(way: str, tokens: int, repeats: int) -> dict[str, float]:
    """Return what a fresh process measures."""
    command = [sys.executable, __file__, "--one", way, str(tokens), "--repeats", str(repeats)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens", nargs="*", type=int, default=[1024, 4096])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--skip-eager", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.tokens[0], options.repeats)))
        return
    print(f"{'tokens':>7} {'':20} {'CPU s':>8} {'ratio':>7} {'peak MB':>9} {'above plain':>12}")
    for tokens in options.tokens:
        plain: dict[str, float] = {}
        for way in WAYS[: 3 if options.skip_eager else 4]:
            one = measured_apart(way, tokens, 1 if way.startswith("eager") else options.repeats)
            plain = plain or one
            ratio, above = one["seconds"] / plain["seconds"], (one["peak"] - plain["peak"]) / 1e6
            print(
                f"{tokens:7} {way:20} {one['seconds']:8.2f} {ratio:7.2f} {one['peak'] / 1e6:9.0f} {above:12.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
