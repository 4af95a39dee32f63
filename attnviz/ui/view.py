"""What is looked at: the state turned into a trace, a layer, a role and a head, with what to say about them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from attnviz.experiment import ARTICLE_EXAMPLE, Experiment
from attnviz.models.load import PretrainedModel
from attnviz.trace import AttentionTrace
from attnviz.ui import cache, look, state

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
        role: the role in view.
        layer: the open layer.
        head: the open head.
        title: what is shown, for headings.
        name: names the trace and the role by what they were made from, so that equal names are equal pictures.
        model: the pretrained model; None for a toy module.
    """

    trace: AttentionTrace
    role: str
    layer: int
    head: int
    title: str
    name: str
    model: PretrainedModel | None = None

    @property
    def place(self) -> tuple[int, int]:
        """The open layer and head."""
        return self.layer, self.head


def current_view() -> View | None:
    """Return what is looked at, with its notices shown; None after saying why there is nothing to see."""
    return _module_view() if state.get("source") == "Modules" else _model_view()


def _module_view() -> View | None:
    experiment = state.experiment()
    name = state.get("model").strip()
    wanted = state.Checkpoint(name, experiment.device, "auto", None, remote_code=False)
    question = cache.ask_before_loading(wanted) if experiment.pretrained else ""
    if question:
        look.render_hint(question)
        st.button("Load it", on_click=cache.allow_loading, args=(wanted,))
        return None
    outcome = cache.outcome(experiment, name)
    if isinstance(outcome, cache.Failure):
        look.render_failure(outcome.sentence)
        return None
    trace = outcome.trace
    role = trace.role()
    layer = trace.layers(role)[0]
    head = min(state.get("head"), trace.heads(layer, role) - 1)
    look.render_notices((ARTICLE_NOTE, *outcome.notices) if is_article(experiment) else outcome.notices)
    made_from = f"{experiment!r} {name if experiment.pretrained else ''}"
    return View(trace, role, layer, head, state.MODULE_TITLES[experiment.module], made_from)


def _model_view() -> View | None:
    checkpoint = state.checkpoint()
    if cache.ask_before_loading(checkpoint):
        look.render_hint("Load the model on the left, or choose one that is on this machine.")
        return None
    model = None if cache.has_failed(checkpoint) else cache.model(checkpoint)
    if model is None or isinstance(model, cache.Failure):
        look.render_hint("There is no model to look at yet; the sidebar says why.")
        return None
    pair = state.get("pair").strip() if model.roles == ("encoder",) else ""
    target = state.get("target").strip() if model.writes_target else ""
    question = cache.ask_before_tracing(model, state.get("sentence"), pair or None)
    if question:
        look.render_hint(question)
        st.button("Trace it", on_click=cache.allow_tracing, args=(model.name, state.get("sentence")))
        return None
    trace = cache.model_trace(checkpoint, model, state.get("sentence"), target or None, pair or None)
    if isinstance(trace, cache.Failure):
        look.render_failure(trace.sentence)
        return None
    role = state.get("role") if state.get("role") in trace.roles else trace.roles[0]
    layer = min(trace.layers(role), key=lambda number: abs(number - state.get("layer")))
    head = min(state.get("model_head"), trace.heads(layer, role) - 1)
    look.render_notices(trace.notices)
    side = f"{role} · " if len(trace.roles) > 1 else ""
    made_from = repr((checkpoint, state.get("sentence"), target, pair, role))
    return View(trace, role, layer, head, f"{side}Layer {layer}", made_from, model)


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
