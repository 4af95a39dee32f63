"""What is looked at: the state turned into a trace, a layer, a role and a head, with what to say about them."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.experiment import ARTICLE_EXAMPLE, Experiment
from attnviz.trace import AttentionTrace
from attnviz.ui import cache, look, state

ARTICLE_NOTE = (
    "These are the article's words and vectors with W^Q = W^K = W^V = I. The table printed in the article differs "
    "(its second row sums to 1.09): it does not follow from the article's own formula. The numbers here do: "
    "softmax(QKᵀ/√2), every row sums to 1."
)


@dataclass(frozen=True)
class View:
    """A trace and the place in it that is open."""

    trace: AttentionTrace
    role: str
    layer: int
    head: int
    title: str
    notices: tuple[str, ...]

    @property
    def mask_words(self) -> str:
        """What the mask of the open layer does, in a sentence; empty where it does nothing."""
        if bool(self.trace.allowed(self.layer, self.role).all()):
            return ""
        return "Hatched cells are not allowed by the mask."


def current_view() -> View | None:
    """Return what is looked at, with its notices shown; None after saying why there is nothing to see."""
    experiment = state.experiment()
    outcome = cache.outcome(experiment, state.get("model"))
    if isinstance(outcome, cache.Failure):
        look.render_failure(outcome.sentence)
        return None
    trace = outcome.trace
    role = trace.roles[0]
    layer = trace.layers(role)[0]
    head = min(int(state.get("head")), trace.heads(layer, role) - 1)
    notices = (ARTICLE_NOTE, *outcome.notices) if is_article(experiment) else outcome.notices
    look.render_notices(notices)
    return View(trace, role, layer, head, state.MODULE_TITLES[experiment.module], notices)


def is_article(experiment: Experiment) -> bool:
    """Whether the experiment is the article's worked example."""
    chosen = (experiment.text.split(), experiment.module, experiment.embedding, experiment.weights)
    wanted = (ARTICLE_EXAMPLE.text.split(), ARTICLE_EXAMPLE.module, ARTICLE_EXAMPLE.embedding, ARTICLE_EXAMPLE.weights)
    return chosen == wanted and experiment.scale and not experiment.causal and not experiment.positions
