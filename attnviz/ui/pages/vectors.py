"""The Vectors page: what goes in, what comes out, and how alike tokens are before and after."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from torch import Tensor

from attnviz.analysis.similarity import cosine_similarity, project_to_plane
from attnviz.plots import plot_movement, plot_similarity, plot_vectors
from attnviz.plots.theme import ThemeName
from attnviz.trace import AttentionTrace
from attnviz.ui import look
from attnviz.ui.view import current_view


def render_vectors() -> None:
    """Show input and output vectors of the trace in view."""
    view = current_view()
    if view is None:
        return
    inputs, outputs = view.trace.inputs, view.trace.outputs
    if inputs is None or outputs is None:
        look.render_failure("This trace keeps no vectors. Choose another model to see them.")
        return
    role = _vector_role(view.trace)
    labels, theme = view.trace.query_tokens(role).labels, look.theme()
    inputs, outputs = inputs.float().cpu(), outputs.float().cpu()
    limit = float(max(inputs.abs().max(), outputs.abs().max()))
    with st.container(key="wrap"):
        left, right = st.columns(2, gap="medium")
    with left:
        st.subheader("Input vectors", anchor=False)
        look.render_figure(plot_vectors(inputs, labels, limit=limit, theme=theme), "inputs")
    with right:
        st.subheader("Output vectors", anchor=False)
        look.render_figure(plot_vectors(outputs, labels, limit=limit, theme=theme), "outputs")
    whose = f" These are the vectors of the {role}." if len(view.trace.roles) > 1 else ""
    st.caption(f"One row per token, one column per dimension; both maps on one colour scale.{whose}")
    if inputs.shape == outputs.shape:
        _render_movement(inputs, outputs, labels, theme)
    _render_similarity(inputs, outputs, labels, theme)


def _vector_role(trace: AttentionTrace) -> str:
    """Return the role whose queries the vectors are: the decoder's in a model with two sides, whatever is in view."""
    return next(role for role in ("decoder", "encoder", "cross") if role in trace.roles)


def _render_movement(inputs: Tensor, outputs: Tensor, labels: Sequence[str], theme: ThemeName) -> None:
    """Show an arrow from each token's input to its output."""
    plane = project_to_plane(inputs, outputs)
    st.subheader("From input to output", anchor=False)
    if plane.explained is None:
        titles = ["dimension 0", "dimension 1"]
        words = "The vectors have two dimensions, so the axes are the dimensions themselves."
    else:
        titles = [f"component {at + 1} ({share:.0%})" for at, share in enumerate(plane.explained)]
        words = (
            f"Principal components of inputs and outputs together; these two hold {sum(plane.explained):.0%} "
            "of their variance, so what is apart in the other dimensions may look close here."
        )
    figure = plot_movement(plane.before, plane.after, labels, axis_titles=titles, theme=theme)
    look.render_figure(figure, "movement")
    st.caption(f"An arrow leads from a token's input (open) to its output (filled). {words}")


def _render_similarity(inputs: Tensor, outputs: Tensor, labels: Sequence[str], theme: ThemeName) -> None:
    """Show the cosine of every pair of tokens, before and after."""
    with st.container(key="wrap-similarity"):
        places = st.columns(2, gap="medium")
    for place, name, vectors in zip(places, ("before", "after"), (inputs, outputs), strict=True):
        with place:
            st.subheader(f"Cosine similarity {name}", anchor=False)
            look.render_figure(
                plot_similarity(cosine_similarity(vectors), labels, labels, theme=theme), f"cosine-{name}"
            )
    st.caption("1 = same direction, 0 = at right angles, −1 = opposite.")
