"""What is looked at: the state turned into a trace, a layer, a role and a head, with what to say about them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from attnviz.analysis.shown import ShownOptions, show, words_said
from attnviz.errors import AttnvizError
from attnviz.experiment import ARTICLE_EXAMPLE, Experiment
from attnviz.models.load import PretrainedModel
from attnviz.trace import AttentionTrace
from attnviz.ui import cache, look, state
from attnviz.ui.state import Reader

ARTICLE_NOTE = (
    "These are the article's words and vectors with W^Q = W^K = W^V = I. The table printed in the article differs "
    "(its second row sums to 1.09): it does not follow from the article's own formula. The numbers here do: "
    "softmax(QKᵀ/√2), every row sums to 1."
)


@dataclass(frozen=True)
class View:
    """A trace and the place in it that is open.

    Attributes:
        trace: the trace.
        shown: what is shown of it: itself, or a view of it in words or without some tokens.
        role: the role in view.
        layer: the open layer.
        head: the open head.
        title: what is shown, for headings.
        name: names what is shown and the role by what they were made from, so that equal names are equal pictures.
        whole: the same of the trace, whatever is hidden.
        model: the pretrained model; None for a toy module.
    """

    trace: AttentionTrace
    shown: AttentionTrace
    role: str
    layer: int
    head: int
    title: str
    name: str
    whole: str
    model: PretrainedModel | None = None

    @property
    def place(self) -> tuple[int, int]:
        """The open layer and head."""
        return self.layer, self.head


def current_view(read: Reader = state.get) -> View | None:
    """Return what is looked at, with its notices shown; None after saying why there is nothing to see.

    Args:
        read: the state, or that of the other side of a comparison, which the sidebar does not know.
    """
    view = _module_view(read) if read("source") == "Modules" else _model_view(read)
    return view and _with_options(view)


def _with_options(view: View) -> View:
    """Return the view with what is hidden left out."""
    options = state.shown_options()
    if options == ShownOptions():
        return view
    name = f"{view.name} {options!r}"
    try:
        shown = cache.reading(("shown", name), lambda: show(view.trace, options))
    except AttnvizError as error:
        look.render_failure(str(error))
        return view
    has_sink = view.trace.layer(view.layer, view.role).rule.sink is not None
    look.render_notices((words_said(options, has_sink=has_sink),))
    return replace(view, shown=shown, name=name)


def _module_view(read: Reader) -> View | None:
    experiment = state.experiment(read)
    name = read("model").strip()
    wanted = state.Checkpoint(name, experiment.device, "auto", None, remote_code=False)
    question = cache.ask_before_loading(wanted) if experiment.pretrained else ""
    if question:
        _ask_to_load(question, wanted)
        return None
    outcome = cache.outcome(experiment, name)
    if isinstance(outcome, cache.Failure):
        look.render_failure(outcome.sentence)
        if experiment.edits and read is state.get:
            st.button("Reset all edits", key="reset-edits", on_click=state.set_values, kwargs={"edits": ""})
        return None
    trace = outcome.trace
    role = trace.role()
    layer = trace.layers(role)[0]
    head = min(read("head"), trace.heads(layer, role) - 1)
    look.render_notices((ARTICLE_NOTE, *outcome.notices) if is_article(experiment) else outcome.notices)
    made_from = f"{experiment!r} {name if experiment.pretrained else ''}"
    return View(trace, trace, role, layer, head, state.MODULE_TITLES[experiment.module], made_from, made_from)


def _ask_to_load(question: str, wanted: state.Checkpoint) -> None:
    """Ask before a model is loaded that only this page knows of."""
    look.render_hint(question)
    st.button("Load it", key=f"load {wanted!r}", on_click=cache.allow_loading, args=(wanted,))


def _model_view(read: Reader) -> View | None:
    checkpoint = state.checkpoint(read)
    model = _model_of_sidebar(checkpoint) if read is state.get else _model_of_page(checkpoint)
    if model is None:
        return None
    pair = read("pair").strip() if model.roles == ("encoder",) else ""
    target = read("target").strip() if model.writes_target else ""
    text = read("sentence")
    question = cache.ask_before_tracing(model, text, pair or None)
    if question:
        look.render_hint(question)
        key = f"trace {model.name} {text}"
        st.button("Trace it", key=key, on_click=cache.allow_tracing, args=(model.name, text))
        return None
    trace = cache.model_trace(checkpoint, model, text, target or None, pair or None)
    if isinstance(trace, cache.Failure):
        look.render_failure(trace.sentence)
        return None
    role = read("role") if read("role") in trace.roles else trace.roles[0]
    layer = min(trace.layers(role), key=lambda number: abs(number - read("layer")))
    head = min(read("model_head"), trace.heads(layer, role) - 1)
    look.render_notices(trace.notices)
    side = f"{role} · " if len(trace.roles) > 1 else ""
    made_from = repr((checkpoint, text, target, pair, role))
    return View(trace, trace, role, layer, head, f"{side}Layer {layer}", made_from, made_from, model)


def _model_of_sidebar(checkpoint: state.Checkpoint) -> PretrainedModel | None:
    """Return the model that the sidebar loads, and says all about."""
    if cache.ask_before_loading(checkpoint):
        look.render_hint("Load the model on the left, or choose one that is on this machine.")
        return None
    model = None if cache.has_failed(checkpoint) else cache.model(checkpoint)
    if model is None or isinstance(model, cache.Failure):
        look.render_hint("There is no model to look at yet; the sidebar says why.")
        return None
    return model


def _model_of_page(checkpoint: state.Checkpoint) -> PretrainedModel | None:
    """Return a model that the sidebar knows nothing of."""
    question = cache.ask_before_loading(checkpoint)
    if question:
        _ask_to_load(question, checkpoint)
        return None
    model = cache.model(checkpoint)
    if isinstance(model, cache.Failure):
        look.render_failure(model.sentence)
        return None
    return model


def open_head(view: View, layer: int, head: int) -> None:
    """Open another head of what is looked at; for a callback."""
    if view.model is None:
        state.set_values(head=head)
    else:
        state.set_values(layer=layer, model_head=head)


def is_article(experiment: Experiment) -> bool:
    """Whether the experiment is the article's worked example; what it leaves unused may differ."""
    words = " ".join(experiment.text.split())
    same = replace(experiment, text=words, context="", heads=1, dimension=2, seed=0, device="auto")
    return same == ARTICLE_EXAMPLE
