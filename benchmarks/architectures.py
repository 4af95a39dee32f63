"""Sweep every text architecture of the installed transformers and write docs/architectures.md.

    python benchmarks/architectures.py [model_type ...] [--jobs 2] [--output docs/architectures.md]

Each architecture is built tiny and random from its configuration, run in a process of its own with a limit on time and
memory, traced, and compared with stock eager attention. The outcome is one of: exact (the largest difference), refused
(why, in attnviz's own words), not buildable from a configuration alone (why), defect (anything else).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import resource
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "models")]

SECONDS, MEMORY = 180, 5 << 30
TOLERANCE = 5e-5
ORDER = ("exact", "unchecked", "refused", "not buildable", "defect")


def examine(model_type: str) -> tuple[str, str]:
    """Return (outcome, detail) for one architecture."""
    import torch
    import zoo

    import attnviz

    torch.set_num_threads(1)
    try:
        model, inputs = _built(zoo, model_type)
        plain = zoo.plain_output(model, inputs)
        again = zoo.plain_output(model, inputs)
    except _NotText as error:
        return "not buildable", str(error)
    except Exception as error:  # whatever a configuration lacks
        return "not buildable", _line(error)
    if not all(tensor.isfinite().all() for tensor in plain if tensor.is_floating_point()):
        return "not buildable", "random weights give NaN"
    if not all(torch.equal(one, two) for one, two in zip(plain, again, strict=True)):
        return "not buildable", "computes something else each time it runs"
    try:
        traces = [attnviz.trace_model(model, inputs, item=item) for item in (0, 1)]
    except attnviz.AttnvizError as error:
        return "refused", str(error)
    except Exception as error:
        return "defect", f"trace: {_line(error)}"
    return _judged(zoo, model, inputs, traces, plain)


class _NotText(Exception):
    """The architecture does not read token ids."""


def _built(zoo: object, model_type: str) -> tuple[object, dict]:
    config = zoo.tiny_config(model_type)
    model = zoo.tiny_model(config)
    if model.main_input_name != "input_ids":
        raise _NotText(f"reads {model.main_input_name}, not text")
    return model, zoo.inputs_of(model.config, padding="right" if zoo.pads(model, config) else None)


def _judged(zoo: object, model: object, inputs: dict, traces: list, plain: list) -> tuple[str, str]:
    import torch

    again = zoo.plain_output(model, inputs)
    if not all(torch.equal(one, two) for one, two in zip(plain, again, strict=True)):
        return "defect", "the model computes something else after the trace"
    how = traces[0].support.how
    alone = ("exact", f"interface, {traces[0].support.max_difference or 0:.0e} from its outputs")
    if how != "interface":
        alone = ("unchecked", "fallback: the weights its softmax gives")
    try:
        stock = zoo.reference(model, inputs)
    except Exception as error:
        return alone[0], f"{alone[1]} (stock eager fails: {_line(error)})"
    if not any(stock.weights.values()):
        return alone[0], f"{alone[1]} (stock eager gives no weights)"
    paired = bool(getattr(model.config, "is_encoder_decoder", False))
    try:
        found = [
            zoo.differences(trace, stock, zoo.kept_of(inputs, item, paired=paired), item)
            for item, trace in enumerate(traces)
        ]
    except Exception as error:
        return "defect", _line(error)
    worst = max(max(one.values()) for one in found)
    roles = ", ".join(f"{role} {len(traces[0].layers(role))}" for role in traces[0].roles)
    left_out = "".join(f"; {notice.partition('. ')[0]}" for notice in traces[0].notices)
    return ("exact" if worst <= TOLERANCE else "defect"), f"{how}, {worst:.0e} ({roles} layers){left_out}"


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    text = re.sub(r"'/[^']*'", "…", text)  # where a library lies says something of this machine, not of the model
    return f"{type(error).__name__}: {text[:160]}"


def _worker(model_type: str, pipe: object) -> None:
    """Examine one architecture with limits, in a process that may die of it."""
    import transformers

    transformers.logging.set_verbosity(50)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (open until the process ends)
    try:
        pipe.send(examine(model_type))
    except BaseException as error:
        pipe.send(("defect", _line(error)))


def outcome(model_type: str) -> tuple[str, str]:
    """Return (outcome, detail) of one architecture, examined in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_worker, args=(model_type, theirs))
    process.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(SECONDS) else ("not buildable", f"more than {SECONDS} s")
    except EOFError:
        found = ("not buildable", f"the process died (more than {MEMORY >> 30} GB, or a crash)")
    process.kill()
    process.join()
    return found


def model_types() -> Iterator[str]:
    """Yield the name of every configuration that has a base model."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    yield from sorted(MODEL_MAPPING_NAMES)


def table(found: dict[str, tuple[str, str]]) -> str:
    """Return the Markdown page."""
    import torch
    import transformers

    counts = Counter(kind for kind, _ in found.values())
    texts = {name: one for name, one in found.items() if not one[1].startswith("reads ")}
    lines = [
        "# Architectures",
        "",
        f"Every architecture of transformers {transformers.__version__} (torch {torch.__version__.split('+')[0]}) that has "
        "a base model, built tiny and random",
        "from its configuration and compared with stock eager attention by `benchmarks/architectures.py`.",
        f"{counts['exact']} exact, {counts['unchecked']} traced without anything to compare with, "
        f"{counts['refused']} refused in a sentence, {counts['defect']} defects; "
        f"{counts['not buildable']} not built here, of which {len(found) - len(texts)} do not read text.",
        "A difference is the largest between any weight of the trace and stock eager's, over all layers, heads and",
        "roles, of a padded batch.",
    ]
    for kind in ORDER:
        rows = [(name, detail) for name, (at, detail) in sorted(texts.items()) if at == kind]
        if rows:
            lines += ["", f"## {kind.capitalize()} ({len(rows)})", "", "| architecture | |", "|---|---|"]
            lines += [f"| {name} | {detail.replace('|', '/')} |" for name, detail in rows]
    others = sorted(set(found) - set(texts))
    if others:
        lines += [
            "",
            f"## Not text ({len(others)})",
            "",
            "Traced by `trace_model` with their own inputs. " + ", ".join(others) + ".",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Sweep, print each outcome, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="architectures; all when left out")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=None, help="where the page is written")
    options = parser.parse_args()
    import transformers.modeling_utils
    import transformers.models.auto.modeling_auto  # noqa: F401 (once, before the processes are forked)

    names = options.names or list(model_types())
    found: dict[str, tuple[str, str]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, one in zip(names, pool.map(outcome, names), strict=True):
            found[name] = one
            print(json.dumps([name, *one]), flush=True)
    print(Counter(kind for kind, _ in found.values()))
    if options.output:
        options.output.parent.mkdir(exist_ok=True)
        options.output.write_text(table(found))


if __name__ == "__main__":
    main()
