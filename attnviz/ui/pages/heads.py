"""The Heads page: the text, every head as a small picture, one of them open with its exact numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st
import torch
from torch import Tensor

from attnviz.models.load import LayerShape
from attnviz.plots import Figure, plot_head, plot_heads
from attnviz.plots.theme import THEMES
from attnviz.statistics import STATISTICS
from attnviz.tokens import for_markdown
from attnviz.ui import cache, look, sending, state
from attnviz.ui.boxes import render_head_boxes
from attnviz.ui.components.frame import link_chart
from attnviz.ui.components.grid import GridOptions, LayerRow, Statistic, render_grid
from attnviz.ui.components.lines import LineOptions, render_lines
from attnviz.ui.components.map import Axis, render_map
from attnviz.ui.components.selection import Place, answer_questions, share_selection
from attnviz.ui.components.strip import render_strip
from attnviz.ui.headmap import read_head
from attnviz.ui.numbers import NUMBERS
from attnviz.ui.view import View, current_view, open_head

SHOWN_BELOW = ("entropy", "distance", "previous_weight", "special_weight")
"""The statistics of the open head that are written out."""

GRID_STATISTICS = tuple(
    Statistic(name, NUMBERS[name].title.lower(), NUMBERS[name].decimals, NUMBERS[name].unit) for name in STATISTICS
)
PIXELS = 32
"""Of a side of a small picture, at most."""


def render_heads() -> None:
    """Show the heads in view."""
    view = current_view()
    if view is None:
        return
    shared = sending.what_is_shared(view)
    share_selection(shared, _callbacks(view))
    answer_questions(shared.trace, shared.shown, partial(_line, view, list(shared.shown)))
    render_strip(
        over=state.get("over"), choices=state.OVER, one_layer=len(view.trace.layers(view.role)) == 1, ink=look.ink()
    )
    look.render_notices(tuple(filter(None, [sending.too_many_for_a_mean(view)])))
    with st.container(key="wrap"):
        grid, large = st.columns([4, 5], gap="medium")
    with grid:
        _render_every_head(view)
    with large:
        _render_open_head(view)
    _render_side_by_side(view)


def _line(view: View, shown: list[Place], side: str, at: int) -> Tensor | None:
    """Return the weights of a token that the browser asks for; None where there is no such token."""
    tokens = view.shown.query_tokens(view.role) if side == "query" else view.shown.key_tokens(view.role)
    return sending.mean_line(view, shown, side, at) if 0 <= at < len(tokens) else None


def _callbacks(view: View) -> dict[str, Callable[[Any], None]]:
    """Return what is done with what a person chooses in the pictures."""
    return {
        "open": lambda at: open_head(view, int(at["layer"]), int(at["head"])),
        "token": lambda token: state.set_values(token=token["at"], side=token["side"]),
        "marked": lambda heads: state.set_values(marked=" ".join(f"{at['layer']}.{at['head']}" for at in heads)),
        "over": lambda over: state.set_values(over=over),
        "grid": lambda options: state.set_values(**options),
        "lines": _keep_lines,
    }


def _keep_lines(told: dict[str, Any]) -> None:
    """Keep in the address how lines are drawn."""
    options = LineOptions.read(told)
    state.set_values(
        threshold=-1 if options.threshold is None else round(1000 * options.threshold),
        strongest=options.top or 0,
        pairs=options.pair,
        horizontal=options.horizontal,
    )


def _render_every_head(view: View) -> None:
    """Show all heads of the role as small pictures, and two boxes that open one too."""
    shapes = _shapes(view)
    st.subheader("Every head", anchor=False)
    render_head_boxes(view, partial(open_head, view))
    with st.spinner("Reading every head", show_time=True):
        pictures, masks, table = sending.grid(view, PIXELS)
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
        + ("A pixel is the largest weight under it." if sending.longest(view) > PIXELS else "A pixel is a weight.")
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


def _shape_words(shape: LayerShape) -> str:
    """Return what is special about a layer."""
    window = "" if shape.window is None else f"sliding window of {shape.window} tokens"
    return ", ".join(part for part in (window, "attention sink" if shape.has_sink else "") if part)


def _render_open_head(view: View) -> None:
    """Show the open head as a map, as lines or in numbers."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.subheader(for_markdown(f"{view.title} · head {view.head}"), anchor=False, width="content")
        state.field("view")
    match state.get("view"):
        case "Lines":
            _render_lines(view)
        case "Numbers" if sending.is_long(view):
            _render_line_table(view)
        case "Numbers":
            st.dataframe(read_head(view, view.head).table())
        case _ if sending.is_long(view):
            _render_map(view)
        case _:
            _render_heatmap(view)


def _render_heatmap(view: View) -> None:
    part = read_head(view, view.head)
    figure = plot_head(part.weights, part.query_labels, part.key_labels, allowed=part.allowed, **look.chosen())
    look.render_figure(figure, "open-head")
    link_chart("open-head", accent=THEMES[look.theme()].accent)
    masked = "" if bool(part.allowed.all()) else "Hatched cells are not allowed by the mask."
    _render_head_words(view, masked)


def _render_map(view: View) -> None:
    """Show a head that is too long for Plotly."""
    trace, (layer, head), role = view.shown, view.place, view.role
    with st.spinner("Reading the head", show_time=True):
        overview = sending.overview(view)

    def read_tile(rows: slice, columns: slice) -> Tensor:
        allowed = trace.layer(layer, role).allowed(rows, columns, head)
        return trace.weights(layer, head, role, rows, columns).masked_fill(~allowed.cpu(), torch.nan)

    queries, keys = trace.query_tokens(role), trace.key_tokens(role)
    render_map(
        overview,
        read_tile,
        name=f"{view.name} {layer}.{head}",
        title=f"{view.title}, head {head}",
        queries=Axis(queries.labels, queries.is_special),
        keys=Axis(keys.labels, keys.is_special),
        sink=trace.sink_weights(layer, head, role),
        ink=look.ink(),
    )
    _render_head_words(view)


def _render_lines(view: View) -> None:
    threshold = state.get("threshold")
    options = LineOptions.read(
        {
            "threshold": threshold / 1000 if threshold >= 0 else None,
            "top": state.get("strongest"),
            "pair": state.get("pairs"),
            "horizontal": state.get("horizontal"),
        }
    )
    with st.spinner("Reading the strongest weights", show_time=True):
        strongest = sending.strongest_lines(view)
    render_lines(strongest=strongest, options=options, ink=look.ink())
    _render_head_words(view)


def _render_line_table(view: View) -> None:
    """Show the numbers of the chosen token, where a table of the whole head would be too large."""
    side, at = sending.chosen_token(view) or sending.last_query(view)
    weights = sending.mean_line(view, [view.place], side, at)
    queries, keys = view.shown.query_tokens(view.role), view.shown.key_tokens(view.role)
    chosen, others = (queries, keys) if side == "query" else (keys, queries)
    words = "what it attends to" if side == "query" else "what attends to it"
    st.caption(for_markdown(f"Token {at}, {chosen.labels[at]}: {words}. Choose another in the text above."))
    st.dataframe(pd.DataFrame({"token": others.labels, "weight": weights.numpy()}).round(6))


def _render_head_words(view: View, *words: str) -> None:
    """Say what the picture shows: which weights, after which mask, and what is special about the layer."""
    has_sink = view.trace.layer(view.layer, view.role).rule.sink is not None
    sums = "; each row, with its sink, sums to 1." if has_sink else "; each whole row sums to 1."
    said = [
        f"Weights after the softmax over keys{sums if view.shown is view.trace else '.'}",
        *filter(None, words),
        *_layer_words(view),
    ]
    st.caption(for_markdown(" ".join(said)))


def _layer_words(view: View) -> list[str]:
    """Return what is special about the open layer."""
    if view.model is None:
        return []
    words = []
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
    with st.container(horizontal=True, key="statistics", gap="small"):
        for name in SHOWN_BELOW:
            number = NUMBERS[name]
            st.metric(number.title.lower(), number.written(row[name]), help=number.help, width="content")


def _render_side_by_side(view: View) -> None:
    """Show the heads of the open layer as full maps, side by side; of a model only when asked, as it takes a moment."""
    heads = view.trace.heads(view.layer, view.role)
    if heads == 1 or sending.longest(view) > sending.MOST_BESIDE:
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
    """Show the maps of a layer, drawn once: the open head changes more often than they do."""

    def draw() -> Figure:
        parts = [read_head(view, head) for head in range(heads)]
        weights: Tensor = torch.stack([part.weights for part in parts])
        allowed: Tensor = torch.stack([part.allowed for part in parts])
        return plot_heads(weights, parts[0].query_labels, parts[0].key_labels, allowed=allowed, **look.chosen())

    key = ("heads-figure", view.name, view.layer, look.theme(), look.ink())
    look.render_figure(cache.reading(key, draw), "all-heads")
