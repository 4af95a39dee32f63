"""Fetching a model from the Hugging Face hub into its cache: only the files that are read, with progress."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from attnviz.load_errors import explained

Progress = Callable[[float | None, str], None]
"""Called with a fraction in [0, 1] (or None when unknown) and a sentence that says what is happening."""

DESCRIPTIONS = ["*.json", "*.txt", "*.model", "*.spm", "*.tiktoken", "*.codes", "*.jinja"]
SAFE_WEIGHTS = ["model.safetensors", "model-*-of-*.safetensors"]
PICKLED_WEIGHTS = ["pytorch_model.bin", "pytorch_model-*-of-*.bin"]
CODE = ["*.py"]
SECONDS_BETWEEN_REPORTS = 0.2


def download(hub_id: str, *, revision: str | None = None, code: bool = False, progress: Progress | None = None) -> Path:
    """The folder of a model in the hub's cache, filled first where something is missing.

    Fetches the configuration, the tokenizer and the safetensors; pickled weights only if there are no safetensors.
    Without a network the cache is used as it is. A name that is nowhere fails at once: the hub is asked a single time.

    Args:
        hub_id: `"owner/name"` or, for the oldest models, `"name"`.
        revision: Branch, tag or commit; None is the main branch.
        code: Also fetch the repository's Python files (they are not run here).
        progress: Called in the caller's thread while bytes arrive.

    Returns:
        A folder with config.json and weights, as far as the repository has them.

    Raises:
        LoadError: No such model or revision, no access, or neither a network nor a copy in the cache.
    """
    described = [*DESCRIPTIONS, *(CODE if code else [])]
    with explained(hub_id, where="the Hugging Face hub"):
        folder = _snapshot(hub_id, [*described, *SAFE_WEIGHTS], revision=revision, progress=progress)
        if not any(folder.glob("*.safetensors")):
            folder = _snapshot(hub_id, [*described, *PICKLED_WEIGHTS], revision=revision, progress=progress)
    return folder


def _snapshot(hub_id: str, patterns: list[str], *, revision: str | None, progress: Progress | None) -> Path:
    from huggingface_hub import snapshot_download

    report = _Latest(f"Downloading {hub_id}")
    # In a thread of its own, so that progress is called in the caller's: Streamlit draws in no other.
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="attnviz-download")
    job = pool.submit(
        snapshot_download,
        hub_id,
        revision=revision,
        allow_patterns=patterns,
        ignore_patterns=["*/*"],
        tqdm_class=bar_class(report),
    )
    pool.shutdown(wait=False)
    while wait([job], timeout=SECONDS_BETWEEN_REPORTS).not_done:
        if progress:
            progress(*report.latest)
    return Path(job.result())


class _Latest:
    """Keeps the last report of a download for whoever asks."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        self.latest: tuple[float | None, str] = (None, sentence)

    def __call__(self, done: float, total: float, unit: str) -> None:
        if unit == "B":  # the bar over files says nothing about time
            megabytes = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
            self.latest = (min(done / total, 1.0), f"{self.sentence}: {megabytes}")


def bar_class(report: Callable[[float, float, str], None]) -> type[Any]:
    """A tqdm class that draws nothing and calls `report(done, total, unit)` instead, a few times a second."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class QuietBar(tqdm):
        monitor_interval = 0  # no watching thread for a bar nobody sees

        def display(self, msg: str | None = None, pos: int | None = None) -> bool:
            """Called by tqdm when a bar would be drawn."""
            if self.total:
                report(self.n, self.total, self.unit)
            return True

        def close(self) -> None:
            """Leaves no last line on the terminal."""
            self.disable = True

    return QuietBar
