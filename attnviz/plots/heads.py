"""One head as a large map, and every head of a layer side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from attnviz.errors import ShapeError
from attnviz.plots.heatmap import (
    BELOW,
    EVERY_LABEL,
    HOVER_CELLS,
    KEY_AXIS,
    QUERY_AXIS,
    WEIGHT,
    checked_map,
    colour_axis,
    colour_bar,
    decimals_in,
    from_the_top,
    hatch,
    side,
    token_axis,
    weight_cells,
)
from attnviz.plots.theme import THEMES, Ink, ThemeName, style
from attnviz.tokens import for_plotly


def plot_head(
    weights: Any,
    query_labels: Sequence[str],
    key_labels: Sequence[str],
    *,
    allowed: Any = None,
    title: str = "",
    selected: int | None = None,
    largest: float = 1.0,
    measure: str = WEIGHT,
    theme: ThemeName = "light",
    ink: Ink = "sqrt",
) -> go.Figure:
    """Return the map of one head, with its exact numbers in the cells where they fit.

    Args:
        weights: [query, key], 0 to 1, as `trace.weights(layer, head)` gives them.
        query_labels: what stands at each row, as `trace.query_tokens().labels`.
        key_labels: what stands at each column.
        allowed: bool [query, key] as `trace.allowed(layer)`; cells that are not allowed are hatched.
        title: says which weights these are.
        selected: a row to frame in the accent colour.
        largest: the value of the strongest ink: 1 for weights; for lengths of vectors, the longest.
        measure: what the numbers are, for the legend; its last word stands before a number on hover.
        theme: "light" or "dark".
        ink: "sqrt" makes small weights visible, "linear" does not; "row" is the share of the row's largest weight.

    Returns:
        A figure whose first trace is the heatmap; its z are the weights, NaN where not allowed (with the ink "row"
        they are shares, and the weights are its customdata).

    Raises:
        ShapeError: there are not as many labels as rows or columns.
        MaskError: the mask has another shape than the weights.
    """
    colours = THEMES[theme]
    weights, allowed = checked_map(weights, allowed, query_labels, key_labels)
    rows, columns = weights.shape
    cells = weight_cells(
        weights,
        allowed,
        query_labels,
        key_labels,
        decimals=decimals_in(columns),
        per_row=ink == "row",
        word=measure.rpartition(" ")[2],
        coloraxis="coloraxis",
    )
    figure = style(go.Figure(cells), colours, title=title)
    most = 1.0 if ink == "row" else largest
    figure.update_layout(
        coloraxis=colour_axis(colours, ink, most)
        | {"colorbar": colour_bar(colours, ink, "bottom", most, measure) | BELOW},
        height=side(rows) + 150,
        margin={"r": 40},  # the last label leans over the edge
    )
    every = max(rows, columns) <= EVERY_LABEL
    figure.update_xaxes(
        token_axis(key_labels, every=every),
        side="top",
        tickangle=-45,
        title={"text": KEY_AXIS, "standoff": 8},
    )
    figure.update_yaxes(from_the_top(token_axis(query_labels, every=every)), title_text=QUERY_AXIS)
    hatch(figure, allowed, colours)
    if selected is not None:
        figure.add_shape(
            type="rect",
            x0=-0.5,
            x1=columns - 0.5,
            y0=selected - 0.5,
            y1=selected + 0.5,
            line={"color": colours.accent, "width": 2},
        )
    return figure


def plot_heads(
    weights: Any,
    query_labels: Sequence[str],
    key_labels: Sequence[str],
    *,
    allowed: Any = None,
    titles: Sequence[str] | None = None,
    columns: int = 4,
    theme: ThemeName = "light",
    ink: Ink = "sqrt",
) -> go.Figure:
    """Return every head as a map of its own, side by side, on one colour scale.

    Args:
        weights: [head, query, key], 0 to 1.
        query_labels: what stands at each row.
        key_labels: what stands at each column.
        allowed: bool [query, key] or [head, query, key]; cells that are not allowed are hatched.
        titles: one per head; "head 0", "head 1", … where left out.
        columns: how many maps stand in a row.
        theme: "light" or "dark".
        ink: "sqrt" makes small weights visible, "linear" does not; "row" is the share of the row's largest weight.

    Returns:
        A figure with one heatmap per head, in the order of the heads.

    Raises:
        ShapeError: there are not as many labels as rows or columns, or titles as heads.
        MaskError: the mask has another shape than the weights.
    """
    colours = THEMES[theme]
    weights, allowed = checked_map(weights, allowed, query_labels, key_labels, heads=True)
    heads, queries, keys = weights.shape
    across = min(columns, heads)
    down = math.ceil(heads / across)
    titles = [f"head {head}" for head in range(heads)] if titles is None else titles
    if len(titles) != heads:
        raise ShapeError(f"Expected a title for each of {heads} heads, got {len(titles)}.")
    places = [(head // across + 1, head % across + 1) for head in range(heads)]
    figure = make_subplots(
        rows=down,
        cols=across,
        specs=[
            [{} if (row, column) in places else None for column in range(1, across + 1)] for row in range(1, down + 1)
        ],
        subplot_titles=[for_plotly(title, None) for title in titles],
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.12 / across,
        vertical_spacing=0.16 / down,
    )
    style(figure, colours)
    figure.update_annotations(font={"size": 13, "color": colours.text})
    for head, (row, column) in enumerate(places):
        mask = allowed if allowed is None or allowed.ndim == 2 else allowed[head]  # noqa: PLR2004
        cells = weight_cells(
            weights[head],
            mask,
            query_labels,
            key_labels,
            most_texts=HOVER_CELLS // heads,
            per_row=ink == "row",
            coloraxis="coloraxis",
        )
        figure.add_trace(cells, row=row, col=column)
        hatch(figure, mask, colours, row=row, col=column)
    most = EVERY_LABEL // max(across, down)
    every = max(queries, keys) <= most
    figure.update_xaxes(token_axis(key_labels, every=every), nticks=most, tickangle=-45)
    figure.update_yaxes(from_the_top(token_axis(query_labels, every=every)), nticks=most)
    for row, column in places[-across:]:  # the last map of each column
        figure.update_xaxes(title_text=KEY_AXIS, showticklabels=True, row=row, col=column)
    figure.update_yaxes(title_text=QUERY_AXIS, col=1)
    figure.update_layout(
        coloraxis=colour_axis(colours, ink) | {"colorbar": colour_bar(colours, ink, "right")},
        height=down * 260 + 80,
        margin={"t": 32},
    )
    return figure
