"""The Heads page: every head as a small map, one of them large with its exact numbers."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from attnviz.models.load import LayerShape
from attnviz.plots import plot_head, plot_head_small
from attnviz.tokens import for_markdown
from attnviz.ui import look, state
from attnviz.ui.components.thumbnails import LayerRow, render_thumbnails
from attnviz.ui.headmap import HeadMap, read_head
from attnviz.ui.view import View, current_view

MOST_TOKENS = 512
"""A longer map is shown in parts of this many tokens a side: Plotly takes seconds for more."""

STATISTIC_WORDS = {
    "entropy": ("entropy", "{:.2f} nats", "How spread the weights are: 0 = all on one key, ln(keys) = all alike."),
    "distance": ("distance", "{:.1f} tokens", "How far away what is attended to stands, on average."),
    "previous_weight": ("previous", "{:.2f}", "Mean weight on the token before."),
    "special_weight": ("special", "{:.2f}", "Mean weight on special tokens such as [CLS], together."),
}


def render_heads() -> None:
    """Show the heads in view."""
    view = current_view()
    if view is None:
        return
    with st.container(key="wrap"):
        grid, large = st.columns([2, 3], gap="medium")
    with grid:
        if view.model is None:
            _render_small_maps(view)
        else:
            _render_every_head(view)
    with large:
        _render_open_head(view)


def _render_small_maps(view: View) -> None:
    """Show every head of a module as a map of its own; its title opens it."""
    heads = view.trace.heads(view.layer, view.role)
    st.subheader("Every head" if heads > 1 else "One head", anchor=False)
    with st.container(horizontal=True, key="heads-grid", gap="small"):
        for head in range(heads):
            with st.container(width=150, gap=None):
                st.button(
                    f"head {head}",
                    key=f"open-{head}",
                    type="primary" if head == view.head else "tertiary",
                    help="Show this head large",
                    on_click=state.set_values,
                    kwargs={"head": head},
                )
                part = read_head(view, head, MOST_TOKENS)
                figure = plot_head_small(
                    part.weights, part.query_labels, part.key_labels, allowed=part.allowed, **_look()
                )
                look.render_figure(figure, f"small-{head}", bar=False)


def _render_every_head(view: View) -> None:
    """Show all heads of a model's role as thumbnails, a row per layer."""
    trace, shapes = view.trace, view.model.shapes[view.role] if view.model else ()
    kept = [shape for shape in shapes if shape.layer in trace.layers(view.role)]
    st.subheader("Every head", anchor=False)
    with st.spinner("Reading every head", show_time=True):
        pictures, masks = trace.thumbnails(view.role), trace.allowed_thumbnails(view.role)
    render_thumbnails(
        [picture[: shape.heads] for picture, shape in zip(pictures, kept, strict=True)],
        masks,
        [LayerRow(shape.layer, str(shape.layer), shape.heads, shape.key_heads, _shape_words(shape)) for shape in kept],
        open_layer=view.layer,
        open_head=view.head,
        on_open=lambda layer, head: state.set_values(layer=layer, model_head=head),
        ink=look.ink(),
    )
    shared = any(shape.key_heads < shape.heads for shape in kept)
    st.caption(
        "A row per layer, a column per head; a pixel is the largest weight under it."
        + (" Heads joined by a line share keys and values." if shared else "")
    )


def _shape_words(shape: LayerShape) -> str:
    """Return what is special about a layer."""
    window = "" if shape.window is None else f"sliding window of {shape.window} tokens"
    return ", ".join(part for part in (window, "attention sink" if shape.has_sink else "") if part)


def _render_open_head(view: View) -> None:
    """Show the open head with its exact numbers."""
    st.subheader(for_markdown(f"{view.title} · head {view.head}"), anchor=False)
    part = read_head(view, view.head, MOST_TOKENS, *_first_tokens(view))
    figure = plot_head(part.weights, part.query_labels, part.key_labels, allowed=part.allowed, **_look())
    look.render_figure(figure, "open-head")
    st.caption(for_markdown(" ".join(_head_words(view, part))))
    _render_statistics(view)
    with st.expander("Numbers"):
        st.dataframe(part.table())


def _first_tokens(view: View) -> tuple[int, int]:
    """Let a person choose which part of a long map is shown; (0, 0) for one that fits."""
    queries, keys = len(view.trace.query_tokens(view.role)), len(view.trace.key_tokens(view.role))
    if max(queries, keys) <= MOST_TOKENS:
        return 0, 0
    st.caption(f"{queries} × {keys} tokens, shown in parts of {MOST_TOKENS} × {MOST_TOKENS}.")
    places = st.columns(2)
    row = places[0].number_input("First query shown", 0, max(queries - 1, 0), 0, MOST_TOKENS // 2)
    column = places[1].number_input("First key shown", 0, max(keys - 1, 0), 0, MOST_TOKENS // 2)
    return int(row), int(column)


def _head_words(view: View, part: HeadMap) -> list[str]:
    """Return what the picture shows: which weights, after which mask, and what is special about the layer."""
    words = ["Weights after the softmax over keys; "]
    words[0] += "each row, with its sink, sums to 1." if part.has_sink else "each whole row sums to 1."
    if part.allowed is not None and not bool(part.allowed.all()):
        words.append("Hatched cells are not allowed by the mask.")
    if view.model is None:
        return words
    shape = view.model.shape(view.layer, view.role)
    if shape.window is not None:
        words.append(f"This layer has a sliding window of {shape.window} tokens.")
    if shape.key_heads < shape.heads:
        group = shape.heads // shape.key_heads
        first = view.head // group * group
        words.append(
            f"Heads {first} to {first + group - 1} share the keys and values of key head {view.head // group}."
        )
    return words


def _render_statistics(view: View) -> None:
    """Show what the open head does in four numbers."""
    table = view.trace.statistics(view.role)
    row = table[(table["layer"] == view.layer) & (table["head"] == view.head)].iloc[0]
    for place, (name, (words, form, meaning)) in zip(st.columns(4), STATISTIC_WORDS.items(), strict=True):
        value = "n/a" if pd.isna(row[name]) else form.format(row[name])
        place.metric(words, value, help=meaning)


def _look() -> look.Look:
    return {"theme": look.theme(), "ink": look.ink()}
