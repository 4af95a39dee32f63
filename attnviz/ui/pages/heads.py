"""The Heads page: the text, every head as a small picture, one of them open with its exact numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st
import torch
from torch import Tensor

from attnviz.models.load import LayerShape
from attnviz.plots import plot_head, plot_heads
from attnviz.plots.theme import THEMES
from attnviz.tokens import for_markdown
from attnviz.ui import look, sending, state
from attnviz.ui.components.frame import link_chart
from attnviz.ui.components.grid import GridOptions, LayerRow, Statistic, render_grid
from attnviz.ui.components.selection import share_selection
from attnviz.ui.components.strip import render_strip
from attnviz.ui.headmap import HeadMap, read_head
from attnviz.ui.view import View, current_view, open_head

STATISTIC_WORDS = {
    "entropy": ("entropy", "{:.2f} nats", "How spread the weights are: 0 = all on one key, ln(keys) = all alike."),
    "distance": ("distance", "{:.1f} tokens", "How far away what is attended to stands, on average."),
    "previous_weight": ("previous", "{:.2f}", "Mean weight on the token before."),
    "special_weight": ("special", "{:.2f}", "Mean weight on special tokens such as [CLS], together."),
}
GRID_STATISTICS = (
    Statistic("entropy", "entropy", 2, "nats"),
    Statistic("distance", "distance", 1, "tokens"),
    Statistic("self_weight", "self"),
    Statistic("previous_weight", "previous"),
    Statistic("next_weight", "next"),
    Statistic("first_weight", "first token"),
    Statistic("special_weight", "special"),
    Statistic("peak_weight", "peak"),
)
PIXELS = 32
"""Of a side of a small picture, at most."""

MOST_BESIDE = 64
"""Up to so many tokens a side the heads of a layer are drawn side by side."""


def render_heads() -> None:
    """Show the heads in view."""
    view = current_view()
    if view is None:
        for key in state.ON_HEADS:
            state.field(key, show=False)
        return
    share_selection(sending.what_is_shared(view), _callbacks(view))
    render_strip(
        over=state.get("over"), choices=state.OVER, one_layer=len(view.trace.layers(view.role)) == 1, ink=look.ink()
    )
    with st.container(key="wrap"):
        grid, large = st.columns([4, 5], gap="medium")
    with grid:
        _render_every_head(view)
    with large:
        _render_open_head(view)
    _render_side_by_side(view)


def _callbacks(view: View) -> dict[str, Callable[[Any], None]]:
    """Return what is done with what a person chooses in the pictures."""

    def want(token: dict[str, Any]) -> None:
        st.session_state["wanted-token"] = (view.name, (str(token["side"]), int(token["at"])))

    return {
        "open": lambda at: open_head(view, int(at["layer"]), int(at["head"])),
        "token": lambda token: state.set_values(token=token["at"], side=token["side"]),
        "marked": lambda heads: state.set_values(marked=" ".join(f"{at['layer']}.{at['head']}" for at in heads)),
        "wanted": want,
        "over": lambda over: state.set_values(over=over),
        "grid": lambda options: state.set_values(**options),
    }


def _render_every_head(view: View) -> None:
    """Show all heads of the role as small pictures, and two boxes that open one too."""
    trace, shapes = view.trace, _shapes(view)
    st.subheader("Every head", anchor=False)
    _render_boxes(view)
    size = min(PIXELS, max(len(trace.query_tokens(view.role)), len(trace.key_tokens(view.role))))
    with st.spinner("Reading every head", show_time=True):
        pictures, masks = trace.thumbnails(view.role, size), trace.allowed_thumbnails(view.role, size)
        table = trace.statistics(view.role)
    render_grid(
        [picture[: shape.heads] for picture, shape in zip(pictures, shapes, strict=True)],
        masks,
        [LayerRow(shape.layer, shape.heads, shape.key_heads, _shape_words(shape)) for shape in shapes],
        table,
        GRID_STATISTICS,
        options=GridOptions(state.get("order"), state.get("tint"), state.get("top")),
        ink=look.ink(),
    )
    shared = any(shape.key_heads < shape.heads for shape in shapes)
    by_layer = state.get("order") == "layer"
    st.caption(
        ("A row per layer, a column per head. " if by_layer else "The heads with the largest value first. ")
        + ("A pixel is the largest weight under it." if size == PIXELS else "A pixel is a weight.")
        + " Click opens a head, Shift-click marks it."
        + (" Heads joined by a line share keys and values." if shared and by_layer else "")
    )
    _render_statistics(view, table)
    state.field("marked")


def _shapes(view: View) -> list[LayerShape]:
    """Return what is known of each layer of the role in view."""
    layers = view.trace.layers(view.role)
    if view.model is None:
        heads = {layer: view.trace.heads(layer, view.role) for layer in layers}
        return [LayerShape(layer, heads[layer], heads[layer], None, None, has_sink=False) for layer in layers]
    return [shape for shape in view.model.shapes[view.role] if shape.layer in layers]


def _render_boxes(view: View) -> None:
    """Let a layer and a head be chosen by name: for the keyboard, and for those who do not see the grid."""
    layers, heads = view.trace.layers(view.role), range(view.trace.heads(view.layer, view.role))
    st.session_state["pick-layer"], st.session_state["pick-head"] = view.place

    def picked() -> None:
        open_head(view, st.session_state["pick-layer"], st.session_state["pick-head"])

    with st.container(horizontal=True, key="boxes", gap="small"):
        st.selectbox("Layer", layers, key="pick-layer", on_change=picked, disabled=len(layers) == 1)
        st.selectbox("Head", heads, key="pick-head", on_change=picked)


def _shape_words(shape: LayerShape) -> str:
    """Return what is special about a layer."""
    window = "" if shape.window is None else f"sliding window of {shape.window} tokens"
    return ", ".join(part for part in (window, "attention sink" if shape.has_sink else "") if part)


def _render_open_head(view: View) -> None:
    """Show the open head as a map, as lines or in numbers."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.subheader(for_markdown(f"{view.title} · head {view.head}"), anchor=False, width="content")
        state.field("view")
    part = read_head(view, view.head)
    match state.get("view"):
        case "Numbers":
            st.dataframe(part.table())
        case _:
            figure = plot_head(part.weights, part.query_labels, part.key_labels, allowed=part.allowed, **_look())
            look.render_figure(figure, "open-head")
            link_chart("open-head", accent=THEMES[look.theme()].accent)
    st.caption(for_markdown(" ".join(_head_words(view, part))))


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


def _render_statistics(view: View, table: pd.DataFrame) -> None:
    """Show what the open head does in four numbers."""
    row = table[(table["layer"] == view.layer) & (table["head"] == view.head)].iloc[0]
    with st.container(horizontal=True, key="statistics", gap="medium"):
        for name, (words, form, meaning) in STATISTIC_WORDS.items():
            value = "n/a" if pd.isna(row[name]) else form.format(row[name])
            st.metric(words, value, help=meaning, width="content")


def _render_side_by_side(view: View) -> None:
    """Show the heads of the open layer as full maps, side by side; of a model only when asked, as it takes a moment."""
    heads = view.trace.heads(view.layer, view.role)
    longest = max(len(view.trace.query_tokens(view.role)), len(view.trace.key_tokens(view.role)))
    if heads == 1 or longest > MOST_BESIDE:
        return
    title = "The heads side by side" if view.model is None else f"The heads of layer {view.layer} side by side"
    if view.model is None:
        st.subheader(title, anchor=False)
        _render_heads_figure(view, heads)
        return
    opened = st.expander(title, key="beside", on_change="rerun")
    if opened.open:
        with opened:
            _render_heads_figure(view, heads)


def _render_heads_figure(view: View, heads: int) -> None:
    parts = [read_head(view, head) for head in range(heads)]
    weights: Tensor = torch.stack([part.weights for part in parts])
    allowed: Tensor = torch.stack([part.allowed for part in parts])
    figure = plot_heads(weights, parts[0].query_labels, parts[0].key_labels, allowed=allowed, **_look())
    look.render_figure(figure, "all-heads")


def _look() -> look.Look:
    return {"theme": look.theme(), "ink": look.ink()}
