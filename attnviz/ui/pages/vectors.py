"""The Vectors page: what goes in, what leaves each layer, how alike tokens are, and what they would say next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st
import torch
from torch import Tensor

from attnviz.analysis.projection import Method, project
from attnviz.analysis.similarity import cosine_similarity, nearest_tokens, norms
from attnviz.errors import AttnvizError
from attnviz.models.lens import Lens, logit_lens
from attnviz.plots import plot_lens, plot_movement, plot_norms, plot_similarity, plot_vectors
from attnviz.tokens import for_markdown
from attnviz.ui import cache, look, state
from attnviz.ui.boxes import numbered, render_slide
from attnviz.ui.view import View, current_view

MOST_TOKENS = 512
"""Up to so many tokens their vectors are drawn."""

METHODS: dict[str, tuple[Method, int]] = {
    state.PLANE: ("pca", 2),
    state.SPACE: ("pca", 3),
    state.NEIGHBOURS: ("tsne", 2),
}


@dataclass(frozen=True)
class Sets:
    """The vectors of the tokens of a role, at every place where they are known.

    Attributes:
        role: whose tokens these are.
        labels: the tokens.
        names: what each set is, in the order of the computation.
        vectors: [token, d_model] each.
    """

    role: str
    labels: tuple[str, ...]
    names: tuple[str, ...]
    vectors: tuple[Tensor, ...]


def render_vectors() -> None:
    """Show the vectors of the trace in view."""
    view = current_view()
    sets = None if view is None else _sets(view)
    if view is None or sets is None:
        return
    at = _render_depth(sets)
    _render_maps(view, sets, at)
    _render_movement(view, sets, at)
    _render_similarity(sets, at)
    if len(sets.names) > 2:  # noqa: PLR2004
        _render_norms(sets)
    _render_lens(view)


def _sets(view: View) -> Sets | None:
    """Return what is known of the vectors of the role in view; None after saying why there are none."""
    trace = view.trace
    role = "decoder" if view.role == "cross" and "decoder" in trace.roles else view.role
    tokens = trace.query_tokens(role)
    states = trace.hidden_states(role)
    names = [f"after layer {at - 1}" if at else "input" for at in range(len(states))]
    if trace.support.how == "module":
        names = ["input", "output"][: len(states)]
    elif trace.outputs is not None and len(trace.outputs) == len(tokens) and _own(view) == role:
        states, names = _with_ends(view, states, names)
    if not states:
        look.render_failure("This trace keeps no vectors. Choose another model, or a shorter text, to see them.")
        return None
    if len(tokens) > MOST_TOKENS:
        look.render_failure(f"Expected at most {MOST_TOKENS} tokens to draw their vectors, got {len(tokens)}.")
        return None
    return Sets(role, tokens.labels, tuple(names), tuple(states))


def _own(view: View) -> str:
    """Return the role whose vectors a trace's inputs and outputs are: the decoder's in a model with two sides."""
    return next(role for role in ("decoder", "encoder", "cross") if role in view.trace.roles)


def _with_ends(view: View, states: tuple[Tensor, ...], names: list[str]) -> tuple[tuple[Tensor, ...], list[str]]:
    """Return the states with the stack's own output behind them, which is the last one after a final norm."""
    outputs, inputs = view.trace.outputs, view.trace.inputs
    if not states:
        return (inputs, outputs) if inputs is not None and outputs is not None else (), ["input", "output"]
    if outputs is None or (states[-1].shape == outputs.shape and torch.equal(states[-1], outputs)):
        return states, names
    return (*states, outputs), [*names, "output"]


def _render_depth(sets: Sets) -> int:
    """Let the vectors be chosen that are compared with the input."""
    last = len(sets.names) - 1
    at = min(state.get("depth"), last)
    if last == 1:
        return at
    words = "The input stands to the left; here the place after it that it is compared with."
    render_slide("depth", at, range(1, len(sets.names)), lambda one: sets.names[one], help=words)
    st.caption(f"These are the vectors of the {sets.role}.")
    return at


def _render_maps(view: View, sets: Sets, at: int) -> None:
    """Show the input and the chosen vectors as maps, and what attention alone gave where that is known."""
    first, chosen = sets.vectors[0], sets.vectors[at]
    limit = float(max(first.abs().max(), chosen.abs().max()))
    with st.container(key="wrap"):
        left, right = st.columns(2, gap="medium")
    with left:
        st.subheader("Input vectors", anchor=False)
        look.render_figure(plot_vectors(first, sets.labels, limit=limit, theme=look.theme()), "inputs")
    with right:
        st.subheader("Output vectors" if sets.names[at] == "output" else f"Vectors {sets.names[at]}", anchor=False)
        look.render_figure(plot_vectors(chosen, sets.labels, limit=limit, theme=look.theme()), "outputs")
    st.caption("One row per token, one column per dimension; both maps on one colour scale.")
    if view.model is not None:
        opened = st.expander("What attention alone adds in a layer", key="attention-open", on_change="rerun")
        if opened.open:
            with opened:
                _render_attention(view)


def _render_attention(view: View) -> None:
    """Show the attention output of the open layer: the heads side by side, through W^O."""
    try:
        output = view.trace.projected(view.layer, view.role)
    except AttnvizError as error:
        look.render_failure(str(error))
        return
    labels = view.trace.query_tokens(view.role).labels
    title = f"{view.title}, the heads' outputs through W^O"
    look.render_figure(plot_vectors(output, labels, title=title, theme=look.theme()), "attention")


def _render_movement(view: View, sets: Sets, at: int) -> None:
    """Show where each token goes, from its input to the chosen vector, or through all layers."""
    st.subheader("Where each token goes", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom", key="boxes-movement"):
        way = state.field("projection")
        through = state.field("through", show=len(sets.names) > 2)  # noqa: PLR2004
    shown = range(at + 1) if through and at > 1 else (0, at)
    if any(sets.vectors[one].shape != sets.vectors[0].shape for one in shown):
        st.caption("Input and output have different widths, so they cannot stand in one plane.")
        return
    method, dimensions = METHODS[way]
    try:
        key = ("project", view.whole, sets.role, method, dimensions, *shown)
        points = cache.reading(
            key, lambda: project([sets.vectors[one] for one in shown], dimensions=dimensions, method=method)
        )
    except AttnvizError as error:
        look.render_failure(str(error))
        return
    names = [sets.names[one] for one in shown]
    titles, words = _axes(points.explained, dimensions, method)
    figure = plot_movement(points.sets, sets.labels, axis_titles=titles, step_names=names, theme=look.theme())
    look.render_figure(figure, "movement")
    st.caption(f"A path leads from a token's input (open) to where it is {_at(names[-1])} (filled). {words}")


def _at(name: str) -> str:
    """Return when a set of vectors is there: "at the output", or "after layer 3"."""
    return f"at the {name}" if name == "output" else name


def _axes(explained: Sequence[float] | None, dimensions: int, method: Method) -> tuple[list[str], str]:
    """Return what the axes are called, and a sentence on what they are."""
    if method == "tsne":
        return [f"t-SNE {at + 1}" for at in range(dimensions)], (
            "t-SNE keeps neighbours together; its axes, and distances between groups, have no meaning."
        )
    if explained is None:
        return [f"dimension {at}" for at in range(dimensions)], "The axes are the vectors' own dimensions."
    titles = [f"component {at + 1} ({share:.0%})" for at, share in enumerate(explained)]
    return titles, (
        f"Principal components of all these vectors together, which hold {sum(explained):.0%} of their variance, so "
        "what is apart in the other dimensions may look close here."
    )


def _render_similarity(sets: Sets, at: int) -> None:
    """Show the cosine of every pair of tokens, before and after, and the tokens nearest to one."""
    with st.container(key="wrap-similarity"):
        places = st.columns(2, gap="medium")
    for place, name, vectors in zip(places, ("before", "after"), (sets.vectors[0], sets.vectors[at]), strict=True):
        with place:
            st.subheader(f"Cosine similarity {name}", anchor=False)
            figure = plot_similarity(cosine_similarity(vectors), sets.labels, sets.labels, theme=look.theme())
            look.render_figure(figure, f"cosine-{name}")
    st.caption("1 = same direction, 0 = at right angles, −1 = opposite.")
    with st.container(width=320, key="boxes-nearest"):
        tokens = range(len(sets.labels))
        chosen = st.selectbox("Nearest to", tokens, format_func=numbered(sets.labels), key="nearest-to")
    rows = [(sets.names[one], _nearest_words(sets.labels, sets.vectors[one], chosen)) for one in (0, at)]
    st.dataframe(pd.DataFrame(rows, columns=["vectors", "nearest tokens, by cosine"]), hide_index=True, key="nearest")


def _nearest_words(labels: tuple[str, ...], vectors: Tensor, at: int) -> str:
    return ", ".join(f"{other} {labels[other]} {cosine:.3f}" for other, cosine in nearest_tokens(vectors, at))


def _render_norms(sets: Sets) -> None:
    """Show how long each vector is after each layer."""
    st.subheader("Length after each layer", anchor=False)
    lengths = torch.stack([norms(vectors) for vectors in sets.vectors])
    look.render_figure(plot_norms(lengths, sets.labels, sets.names, theme=look.theme()), "norms")


def _render_lens(view: View) -> None:
    """Show what a decoder would say next after each layer, when asked."""
    model = view.model
    if model is None or not ({"decoder", "cross"} & set(view.trace.roles)):
        return
    opened = st.expander("Logit lens, the likeliest next tokens after each layer", key="lens-open", on_change="rerun")
    if not opened.open:
        return
    with opened:
        try:
            with st.spinner("Reading what each layer would say", show_time=True):
                key = ("lens", view.whole)
                lens: Lens = cache.reading(key, lambda: logit_lens(model, view.trace))
        except AttnvizError as error:
            look.render_failure(str(error))
            return
        role = "decoder" if "decoder" in view.trace.roles else "cross"
        labels = view.trace.query_tokens(role).labels
        if lens.note:
            look.render_notices((f"Only what the model says in the end is known. {lens.note}",))
        figure = plot_lens(
            lens.labels,
            lens.probabilities,
            [labels[position] for position in lens.positions],
            lens.names,
            positions=lens.positions,
            theme=look.theme(),
        )
        look.render_figure(figure, "lens")
        st.caption(
            for_markdown(
                "The vectors after each layer through the model's own final norm and head. After the last layer this "
                f"is what the model says (the logits differ from its own by at most {lens.difference:.1e}); before, "
                "what its head makes of vectors that it was not trained on."
            )
        )
        st.dataframe(lens.table(), hide_index=True, key="lens-table", height=240)
