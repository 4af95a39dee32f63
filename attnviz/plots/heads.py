"""One head as a large map, and every head of a layer side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from attnviz.errors import MaskError, ShapeError
from attnviz.plots.heatmap import HOVER_CELLS, as_array, hatching, token_axis, weight_cells
from attnviz.plots.theme import THEMES, Ink, Theme, ThemeName, sequential_scale, style
from attnviz.tokens import for_plotly

QUERY_AXIS = "query: attends from"
KEY_AXIS = "key: attended to"
EVERY_LABEL = 64
CELL = 34  # pixels of a cell, before a long text makes cells smaller
LARGEST, SMALLEST = 620, 230  # pixels of the side of a map
LEGENDS: dict[Ink, str] = {
    "sqrt": "attention weight (√ ink)",
    "linear": "attention weight (linear ink)",
    "row": "share of the row's largest weight",
}
BELOW = {"orientation": "h", "len": 0.5, "x": 0, "xanchor": "left", "y": 0, "yanchor": "top", "ypad": 14}
"""Where the legend stands when the labels of the columns are above the map."""


def plot_head(
    weights: Any,
    query_labels: Sequence[str],
    key_labels: Sequence[str],
    *,
    allowed: Any = None,
    title: str = "",
    selected: int | None = None,
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
    weights, allowed = _checked(weights, allowed, query_labels, key_labels)
    rows, columns = weights.shape
    cells = weight_cells(
        weights,
        allowed,
        query_labels,
        key_labels,
        decimals=_decimals(columns),
        per_row=ink == "row",
        coloraxis="coloraxis",
    )
    figure = style(go.Figure(cells), colours, title=title)
    figure.update_layout(
        coloraxis=_colour_axis(colours, ink) | {"colorbar": _colour_bar(colours, ink, "bottom") | BELOW},
        height=_side(rows) + 150,
        margin={"r": 40},  # the last label leans over the edge
    )
    every = max(rows, columns) <= EVERY_LABEL
    figure.update_xaxes(
        token_axis(key_labels, every=every),
        side="top",
        tickangle=-45,
        title={"text": KEY_AXIS, "standoff": 8},
    )
    figure.update_yaxes(_from_the_top(token_axis(query_labels, every=every)), title_text=QUERY_AXIS)
    _hatch(figure, allowed, colours)
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
    weights, allowed = _checked(weights, allowed, query_labels, key_labels, heads=True)
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
        _hatch(figure, mask, colours, row=row, col=column)
    every = max(queries, keys) * max(across, down) <= EVERY_LABEL
    figure.update_xaxes(token_axis(key_labels, every=every), tickangle=-45)
    figure.update_yaxes(_from_the_top(token_axis(query_labels, every=every)))
    for row, column in places[-across:]:  # the last map of each column
        figure.update_xaxes(title_text=KEY_AXIS, showticklabels=True, row=row, col=column)
    figure.update_yaxes(title_text=QUERY_AXIS, col=1)
    figure.update_layout(
        coloraxis=_colour_axis(colours, ink) | {"colorbar": _colour_bar(colours, ink, "right")},
        height=down * 260 + 80,
        margin={"t": 32},
    )
    return figure


def _checked(
    weights: Any, allowed: Any, query_labels: Sequence[str], key_labels: Sequence[str], *, heads: bool = False
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return weights and mask as arrays that fit their labels; no mask where it forbids nothing."""
    weights, cells = as_array(weights), (len(query_labels), len(key_labels))
    if weights.shape[-2:] != cells or weights.ndim != 2 + heads:
        axes = "[head, query, key]" if heads else "[query, key]"
        raise ShapeError(f"Expected weights {axes} for {cells[0]} × {cells[1]} labels, got {list(weights.shape)}.")
    if allowed is None:
        return weights, None
    allowed = np.asarray(allowed, dtype=bool)
    if allowed.shape not in (cells, weights.shape):
        raise MaskError(f"Expected a mask of shape {list(cells)} or {list(weights.shape)}, got {list(allowed.shape)}.")
    return weights, None if allowed.all() else allowed


def _from_the_top(axis: dict[str, Any]) -> dict[str, Any]:
    """Return an axis that counts downwards, so that the first row is on top."""
    return axis | {"range": axis["range"][::-1]}


def _decimals(columns: int) -> int | None:
    """Return how many decimals fit into a cell."""
    for most, decimals in ((8, 4), (12, 3), (18, 2)):
        if columns <= most:
            return decimals
    return None


def _side(length: int) -> int:
    """Return the pixels of a side of a map with so many cells."""
    return max(SMALLEST, min(LARGEST, CELL * length))


def _colour_axis(theme: Theme, ink: Ink) -> dict[str, Any]:
    return {"colorscale": sequential_scale(theme, ink), "cmin": 0, "cmax": 1}


def _colour_bar(theme: Theme, ink: Ink, side: str) -> dict[str, Any]:
    """Return a thin legend with its title at a side; it stands at the right of the maps."""
    return {
        "thickness": 8,
        "outlinecolor": theme.line,
        "tickvals": [0, 0.1, 0.25, 0.5, 1] if ink == "sqrt" else [0, 0.25, 0.5, 0.75, 1],
        "title": {
            "text": LEGENDS[ink],
            "side": side,
            "font": {"size": 11, "color": theme.muted},
        },
    }


def _hatch(figure: go.Figure, allowed: np.ndarray | None, theme: Theme, **place: int) -> None:
    """Hatch the cells that are not allowed."""
    image = None if allowed is None else hatching(allowed, theme)
    if image is not None:
        figure.add_layout_image(image if place else image | {"xref": "x", "yref": "y"}, **place)
