"""The one home of caches: loaded models and traces, each bounded, keyed by plain values."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any, Generic, TypeVar

import streamlit as st

from attnviz.embeddings import PretrainedEmbedding, load_embedding
from attnviz.errors import AttnvizError
from attnviz.experiment import Experiment, Outcome, run_experiment
from attnviz.locations import locate
from attnviz.models.catalogue import is_on_this_machine, megabytes_to_load
from attnviz.models.load import PretrainedModel, load_model
from attnviz.tokens import for_markdown
from attnviz.trace import AttentionTrace
from attnviz.ui.state import Checkpoint

Loaded = TypeVar("Loaded")
Progress = Callable[[float | None, str], None]

MOST_MODELS = 2
MOST_MEGABYTES = 1000
MOST_SECONDS = 5
MOST_TRACES = 32
MOST_MODEL_TRACES = 6
MOST_READINGS = 64


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
            place.progress(loading.fraction or 0.0, text=for_markdown(loading.sentence))
        place.empty()
    if loading.failed:
        forget()
    return loading.result()


@st.cache_resource(max_entries=MOST_MODELS, show_spinner=False)
def _model(name: str, device: str, dtype: str, revision: str | None, remote_code: bool) -> Loading[PretrainedModel]:
    return Loading(
        lambda progress: load_model(
            name, device=device, dtype=dtype, revision=revision, trust_remote_code=remote_code, progress=progress
        )
    )


def ask_before_loading(checkpoint: Checkpoint) -> str:
    """Return what a person should know before a model is loaded; empty where loading is quick and local."""
    if checkpoint in st.session_state.get("allowed-loads", ()):
        return ""
    try:
        here, size = is_on_this_machine(checkpoint.name), megabytes_to_load(checkpoint.name)
        on_hub = locate(checkpoint.name).hub_id is not None
    except AttnvizError:
        return ""  # loading says what is wrong with the name
    amount = "an unknown amount" if size is None else f"about {size:,} MB"
    if not here:
        return f"{checkpoint.name} is not on this machine. Loading it downloads {amount} from the Hugging Face hub."
    if on_hub and checkpoint.revision is not None:  # what is on this machine is the main revision
        return (
            f"Revision {checkpoint.revision} of {checkpoint.name} comes from the Hugging Face hub. "
            f"Loading it downloads {amount}, unless it is in this machine's cache."
        )
    if size is not None and size > MOST_MEGABYTES:
        return f"{checkpoint.name} takes {amount} of memory, and may take a while to load."
    return ""


def allow_loading(checkpoint: Checkpoint) -> None:
    """Remember that a person wants a model loaded, for as long as the page is open."""
    st.session_state["allowed-loads"] = (*st.session_state.get("allowed-loads", ())[-9:], checkpoint)


def model(checkpoint: Checkpoint) -> PretrainedModel | Failure:
    """Return a loaded model, showing progress while it loads; a sentence where it cannot be loaded."""
    key = astuple(checkpoint)
    st.session_state["failed-load"] = None
    try:
        return _wait_for(_model(*key), forget=lambda: _model.clear(*key))
    except AttnvizError as error:
        st.session_state["failed-load"] = checkpoint
        return Failure(str(error))


def has_failed(checkpoint: Checkpoint) -> bool:
    """Return whether the last try to load a model failed, so that one run of the page does not try twice."""
    return bool(st.session_state.get("failed-load") == checkpoint)


def ask_before_tracing(loaded: PretrainedModel, text: str, pair: str | None) -> str:
    """Return what a person should know before a long text is traced; empty where it is quick and small."""
    if (loaded.name, text) in st.session_state.get("allowed-traces", ()):
        return ""
    estimate = loaded.estimate(text, pair)
    if estimate.seconds <= MOST_SECONDS and estimate.bytes <= MOST_MEGABYTES * 1_000_000:
        return ""
    return (
        f"Tracing these {estimate.tokens:,} tokens takes about {estimate.seconds:.0f} s "
        f"and keeps about {estimate.bytes / 1e6:,.0f} MB."
    )


def allow_tracing(name: str, text: str) -> None:
    """Remember that a person wants a text traced, for as long as the page is open."""
    st.session_state["allowed-traces"] = (*st.session_state.get("allowed-traces", ())[-9:], (name, text))


@st.cache_resource(max_entries=MOST_MODEL_TRACES, show_spinner=False)
def _model_trace(
    key: tuple[Any, ...], text: str, target: str | None, pair: str | None, _model: PretrainedModel
) -> Loading[AttentionTrace]:
    return Loading(lambda progress: _model.trace(text, target, pair, progress=progress))


def model_trace(
    checkpoint: Checkpoint, loaded: PretrainedModel, text: str, target: str | None, pair: str | None
) -> AttentionTrace | Failure:
    """Return the trace of a text, computed once; a sentence where it cannot be done."""
    key = (astuple(checkpoint), text, target, pair)
    try:
        return _wait_for(_model_trace(*key, loaded), forget=lambda: _model_trace.clear(*key, loaded))
    except AttnvizError as error:
        return Failure(str(error))


@st.cache_resource(max_entries=MOST_READINGS, show_spinner=False)
def _reading(key: tuple[Any, ...], _read: Callable[[], Any]) -> Any:
    return _read()


def reading(key: tuple[Any, ...], read: Callable[[], Loaded]) -> Loaded:
    """Return what is read from a trace, read once; nobody may change it.

    Args:
        key: plain values that say what is read: the name of the trace, the head, and so on.
        read: reads it.
    """
    found: Loaded = _reading(key, read)
    return found


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
