"""The one home of caches: loaded models and traces, each bounded, keyed by plain values."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import streamlit as st

from attnviz.embeddings import PretrainedEmbedding, load_embedding
from attnviz.errors import AttnvizError
from attnviz.experiment import Experiment, Outcome, run_experiment

Loaded = TypeVar("Loaded")
Progress = Callable[[float | None, str], None]

MOST_MODELS = 2
MOST_TRACES = 32


class Loading(Generic[Loaded]):
    """Something slow that goes on in a thread of its own, so that a rerun neither stops nor repeats it."""

    def __init__(self, load: Callable[[Progress], Loaded]) -> None:
        """Start loading at once."""
        self.fraction: float | None = None
        self.sentence = "Starting"
        self._result: Loaded | None = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, args=(load,), daemon=True).start()

    def _run(self, load: Callable[[Progress], Loaded]) -> None:
        try:
            self._result = load(self._report)
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def _report(self, fraction: float | None, sentence: str) -> None:
        self.fraction, self.sentence = fraction, sentence

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; return whether loading has ended."""
        return self._done.wait(seconds)

    @property
    def failed(self) -> bool:
        """Whether loading has ended in an error."""
        return self._error is not None

    def result(self) -> Loaded:
        """Return what was loaded, or raise the error it ended in; to be called when `wait` says so."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result


@st.cache_resource(max_entries=MOST_MODELS, show_spinner=False)
def _embedding(name: str, device: str) -> Loading[PretrainedEmbedding]:
    return Loading(lambda progress: load_embedding(name, device=device, progress=progress))


def embedding(name: str, device: str) -> PretrainedEmbedding:
    """Return a loaded embedding, showing progress while it loads; AttnvizError where it cannot be loaded."""
    return _wait_for(_embedding(name, device), forget=lambda: _embedding.clear(name, device))


def _wait_for(loading: Loading[Loaded], forget: Callable[[], None]) -> Loaded:
    """Return the result of a loading, with a progress bar while it takes its time; a failed one is forgotten."""
    if not loading.wait(0.3):
        place = st.empty()
        while not loading.wait(0.2):
            place.progress(loading.fraction or 0.0, text=loading.sentence)
        place.empty()
    if loading.failed:
        forget()
    return loading.result()


@dataclass(frozen=True)
class Failure:
    """A sentence in place of a trace."""

    sentence: str


@st.cache_resource(max_entries=MOST_TRACES, show_spinner=False)
def _outcome(key: str, _experiment: Experiment, _embedding: PretrainedEmbedding | None) -> Outcome:
    return run_experiment(_experiment, _embedding)


def outcome(experiment: Experiment, model_name: str) -> Outcome | Failure:
    """Return what an experiment gives, computed once; a sentence where it cannot be done."""
    try:
        loaded = embedding(model_name, experiment.device) if experiment.pretrained else None
        return _outcome(f"{experiment!r} {model_name if experiment.pretrained else ''}", experiment, loaded)
    except AttnvizError as error:
        return Failure(str(error))
