"""The Guide: attention in ten short screens with live pictures, and what every word and number of the app means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import streamlit as st
import torch

from attnviz.analysis.norms import norm_weighted
from attnviz.analysis.patterns import PATTERNS
from attnviz.analysis.scaling import score_spread
from attnviz.errors import AttnvizError
from attnviz.experiment import ARTICLE_EXAMPLE, Experiment
from attnviz.locations import MINILM
from attnviz.models.catalogue import is_on_this_machine
from attnviz.plots import plot_head, plot_heads, plot_spread, plot_vectors
from attnviz.statistics import DEFINITIONS
from attnviz.tokens import for_markdown
from attnviz.trace import AttentionTrace
from attnviz.ui import cache, look, navigation, state
from attnviz.ui.boxes import render_choice, render_turner

ANIMAL = state.SENTENCE
TOY = Experiment(text=state.FIRST_TEXT)
CROSS = Experiment(text="le chat noir", context="the black cat sleeps", module="multi-head cross")
MODULES = {"source": "Modules"}


@dataclass(frozen=True)
class Screen:
    """One screen of the guide.

    Attributes:
        title: what it is about.
        text: Markdown.
        picture: draws the live picture.
        page: where "Try it" leads.
        values: the state it leads to.
    """

    title: str
    text: str
    picture: Callable[[], None]
    page: str
    values: dict[str, Any] = field(default_factory=dict)


def render_guide() -> None:
    """Show one screen of the guide, and the words below it."""
    at = min(state.get("screen"), len(SCREENS))
    screen = SCREENS[at - 1]
    _render_pager(at)
    with st.container(key="wrap-guide"):
        words, picture = st.columns([4, 5], gap="large")
    with words:
        st.subheader(_title(at), anchor=False)
        st.markdown(screen.text)
        navigation.render_way("Try it", screen.page, screen.values)
    with picture:
        screen.picture()
    _render_words()
    _render_sources()


def _render_pager(screen: int) -> None:
    """Draw what moves between the screens, counted from 1."""
    last = len(SCREENS)
    with st.container(horizontal=True, vertical_alignment="center", key="pager"):
        render_turner("screen", screen, 1, last)
        titles = range(1, last + 1)
        render_choice("screen", screen, titles, _title, label="Screen", label_visibility="collapsed")


def _title(screen: int) -> str:
    return f"{screen} · {SCREENS[screen - 1].title}"


# ---- The pictures


def _toy(experiment: Experiment) -> AttentionTrace:
    """Return the trace of an example."""
    outcome = cache.outcome(experiment, "")
    if isinstance(outcome, cache.Failure):
        raise AttnvizError(outcome.sentence)
    return outcome.trace


def _show_vectors() -> None:
    trace = _toy(ARTICLE_EXAMPLE)
    look.render_figure(plot_vectors(trace.inputs, trace.query_tokens().labels, theme=look.theme()), "guide")


def _show_queries() -> None:
    trace = _toy(TOY)
    labels = trace.query_tokens().labels
    for name, vectors in (("queries", trace.queries(0, 0)), ("keys", trace.keys(0, 0)), ("values", trace.values(0, 0))):
        look.render_figure(plot_vectors(vectors, labels, title=name, theme=look.theme()), f"guide-{name}")


def _show_map(trace: AttentionTrace, layer: int, head: int, title: str = "") -> None:
    figure = plot_head(
        trace.weights(layer, head),
        trace.query_tokens().labels,
        trace.key_tokens().labels,
        allowed=trace.allowed(layer, head=head),
        title=title,
        **look.chosen(),
    )
    look.render_figure(figure, "guide")


def _show_output() -> None:
    trace = _toy(ARTICLE_EXAMPLE)
    look.render_figure(plot_vectors(trace.outputs, trace.query_tokens().labels, theme=look.theme()), "guide")


def _show_spread() -> None:
    sizes = (2, 8, 32, 128, 512)
    table = cache.reading(("spread", sizes, 0), lambda: score_spread(sizes, seed=0))
    look.render_figure(plot_spread(table, theme=look.theme()), "guide")


def _show_heads(experiment: Experiment) -> None:
    trace = _toy(experiment)
    maps = torch.stack([trace.weights(0, head) for head in range(trace.heads(0))])
    labels = trace.query_tokens().labels, trace.key_tokens().labels
    look.render_figure(plot_heads(maps, *labels, allowed=trace.allowed(0), columns=2, **look.chosen()), "guide")


def _show_model() -> None:
    trace = _animal()
    if trace is not None:
        _show_map(trace, 3, 1, "all-MiniLM-L6-v2, layer 3, head 1")


def _show_norms() -> None:
    trace = _animal()
    if trace is None:
        return
    norms, labels = norm_weighted(trace, 3, 1), trace.query_tokens().labels
    scale: dict[str, Any] = {"largest": float(norms.max()), "measure": "added length"}
    figure = plot_head(norms, labels, labels, title="‖weight · value · W^O‖", **scale, **look.chosen())
    look.render_figure(figure, "guide")


def _animal() -> AttentionTrace | None:
    """Return MiniLM's trace of the animal that was too tired; None after saying that the model is not here."""
    if not is_on_this_machine(MINILM):
        look.render_hint("The picture needs all-MiniLM-L6-v2, which is not on this machine.")
        return None
    wanted = state.Checkpoint(MINILM, "auto", "auto", None, remote_code=False)
    model = cache.model(wanted)
    trace = model if isinstance(model, cache.Failure) else cache.model_trace(wanted, model, ANIMAL, None, None)
    if isinstance(trace, cache.Failure):
        look.render_failure(trace.sentence)
        return None
    return trace


# ---- The screens

ARTICLE = MODULES | state.EXAMPLES["The article's numbers"] | {"edits": ""}
MODEL = {"source": "Model", "checkpoint": MINILM, "sentence": ANIMAL, "layer": 3, "model_head": 1}
SCREENS = (
    Screen(
        "A word is a row of numbers",
        "A network cannot add up words, so each token gets a **vector**: a row of numbers. Here five words have two "
        "numbers each, small enough to follow by hand. Words that are alike may get vectors that are alike; but "
        "*bank* has the same vector beside a river as beside a counter. What is missing is the company it keeps.\n\n"
        "**Attention** is how a token takes something from the other tokens.",
        _show_vectors,
        "vectors",
        ARTICLE,
    ),
    Screen(
        "Query, key, value",
        "Each vector is multiplied by three matrices that the network has learned:\n\n"
        "- the **query** $Q = XW^Q$: what a token looks for,\n"
        "- the **key** $K = XW^K$: what a token can be found by,\n"
        "- the **value** $V = XW^V$: what a token gives when it is found.\n\n"
        "The words are only a help to remember. They are three rows of numbers, and training decides what is in them.",
        _show_queries,
        "steps",
        MODULES | {"lesson": "One head", "telling": "one at a time", "step": 1, "edits": ""},
    ),
    Screen(
        "From scores to weights",
        "How well a query and a key fit is their dot product, the **score** q·k. A row of scores becomes a row of "
        "**weights** by the softmax: e to the power of each score, divided by the sum. Weights are between 0 and 1, "
        "and a row sums to 1.\n\n"
        "A row of the map is one token that looks (the query), a column one that is looked at (the key). The stronger "
        "the ink, the larger the weight.",
        lambda: _show_map(_toy(ARTICLE_EXAMPLE), 0, 0),
        "steps",
        ARTICLE | {"lesson": "One head", "telling": "all at once"},
    ),
    Screen(
        "What comes out",
        "Each token's output is the sum of all values, each times its weight. A token with weight 1 on another becomes "
        "a copy of that one's value; a token with equal weights everywhere becomes the mean of all.\n\n"
        "So the vector of a word now depends on its company. That is **self-attention**: a text that looks at itself.",
        _show_output,
        "vectors",
        ARTICLE,
    ),
    Screen(
        "Why scores are divided by √d",
        "A dot product of d random numbers spreads like √d. With d = 64 scores of ±8 are usual, and e⁸ is 3,000 times "
        "e⁰: nearly all the weight falls on one key, and the softmax hardly moves when a score changes a little. Then "
        "there is nothing to learn from. Divided by **√d** the scores keep a spread of 1, whatever d is.\n\n"
        "With two dimensions, as in the first screens, it hardly matters.",
        _show_spread,
        "steps",
        {"lesson": "Why √d"},
    ),
    Screen(
        "Masks",
        "A model that writes one word after the other must not look ahead. A **causal mask** forbids each token the "
        "later ones: their scores become −∞, their weights 0, and the others share the whole.\n\n"
        "A forbidden cell is hatched here and never drawn as a 0: a weight of 0 was decided by the numbers, a mask was "
        "decided before.",
        lambda: _show_map(_toy(Experiment(text=state.FIRST_TEXT, causal=True)), 0, 0),
        "heads",
        MODULES | {"mask": "causal", "text": state.FIRST_TEXT, "module": "Multi-head self-attention", "edits": ""},
    ),
    Screen(
        "Several heads",
        "One set of weights can look one way only. So the numbers of a vector are divided among several **heads**, "
        "each with queries, keys and values of its own. Each gives weights of its own; their outputs stand side by "
        "side and "
        "are mixed by one more matrix, $W^O$.\n\n"
        "Here four heads read the same sentence. Their matrices are random, so what they show means nothing: training "
        "gives it meaning.",
        lambda: _show_heads(TOY),
        "steps",
        MODULES | {"lesson": "Why several heads"},
    ),
    Screen(
        "Two texts, cross-attention",
        "A translation looks at two texts. The queries come from the one that is being written, keys and values from "
        "the one that is read: **cross-attention**. The map then has as many rows as the first has tokens and as many "
        "columns as the second.",
        lambda: _show_heads(CROSS),
        "heads",
        MODULES | state.EXAMPLES["Cross-attention"] | {"edits": ""},
    ),
    Screen(
        "In a real model",
        "all-MiniLM-L6-v2 has 6 layers of 12 heads. In layer 3, head 1, the row of *it* puts 0.68 on *animal*. Put "
        "*wide* in the place of *tired*, and 0.28 is left there.\n\n"
        "That is one head on one sentence. It is worth a look, not a law: other heads do other things, and most do "
        "nothing that has a name.",
        _show_model,
        "heads",
        MODEL,
    ),
    Screen(
        "What weights tell, and what not",
        "A weight says how much of a token's **value** is taken. It does not say how long that value is: many heads "
        "rest on the first token, whose value is nearly nothing. Here each weight is multiplied by the length of what "
        "it "
        "brings, and the column of [CLS] fades.\n\n"
        "Nor does a weight say why the model answers as it does: other weights can give the same answer, and what "
        "flows past attention, through the residual connection, is in no map. Look at weights as a first clue, and "
        "test it: "
        "change a word, compare, follow the layers.",
        _show_norms,
        "statistics",
        MODEL | {"topic": "Norms"},
    ),
)


# ---- Words and sources

TERMS = {
    "token": "A piece of a text with a vector of its own: a word, a part of a word, a punctuation mark.",
    "special token": "A token that the tokenizer put in, such as [CLS] or <s>.",
    "query, key, value": "Three vectors of a token: what it looks for, what it is found by, what it gives.",
    "score": "q·k, times a scaling, plus a bias and through a soft-cap where a model has them.",
    "weight": "A row's share of 1 after the softmax of its allowed scores.",
    "mask": "Which keys a query may attend to. Cells that are not allowed are hatched.",
    "head": "One set of queries, keys and values, and the weights they give.",
    "layer": "One step of a model; its attention has one or more heads.",
    "role": "encoder (a text that sees itself whole), decoder (that sees what came before), cross (that sees another).",
    "attention sink": "A token, or a number that belongs to no token, that takes the weight a head has no use for.",
    "grouped queries": "Several heads that read the same keys and values.",
    "window": "A layer in which a token sees only so many tokens before it.",
    "rollout": "Layers of ½·mean weights + ½·residual, multiplied: how much of each input token is in each output "
    "token.",
    "flow": "The most that can flow from a token to each one of the input through the same layers.",
    "norm-weighted": "The length of what a key adds to a query's output: ‖weight · value · W^O‖.",
    "Jensen–Shannon divergence": "How unlike two rows of weights are, in nats: 0 for equal ones, ln 2 without a key "
    "in common.",
}
SOURCES = (
    "Vaswani et al. 2017, Attention Is All You Need",
    "Clark et al. 2019, What Does BERT Look At?",
    "Jain and Wallace 2019, Attention is not Explanation",
    "Wiegreffe and Pinter 2019, Attention is not not Explanation",
    "Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers",
    "Kobayashi et al. 2020, Attention is Not Only a Weight",
    "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits",
    "Olsson et al. 2022, In-context Learning and Induction Heads",
    "Xiao et al. 2024, Efficient Streaming Language Models with Attention Sinks",
)


def _render_words() -> None:
    """Show what every term and every number means."""
    st.subheader("Words used here", anchor="words")
    st.markdown("\n".join(f"- **{for_markdown(word)}**: {for_markdown(meaning)}" for word, meaning in TERMS.items()))
    st.subheader("Numbers of a head", anchor="numbers")
    st.caption("Each is a mean over the query rows of a head, on the text at hand.")
    known: list[Any] = [*DEFINITIONS.values(), *PATTERNS.values()]
    lines = [f"- **{for_markdown(one.title)}**: {for_markdown(f'{one.definition} {one.range}.')}" for one in known]
    st.markdown("\n".join(dict.fromkeys(lines)))


def _render_sources() -> None:
    st.subheader("Sources", anchor="sources")
    st.markdown("\n".join(f"- {for_markdown(source)}" for source in SOURCES))
