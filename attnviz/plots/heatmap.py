"""The pieces a map of numbers is drawn with: cells, token axes, hover text, hatching of masked cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnviz.plots.theme import Theme
from attnviz.tokens import for_plotly

HOVER_CELLS = 10_000
"""Up to this many cells each has a hover text of its own; above, hover is put together from the axes."""

LABEL_LIMIT = 24


def token_axis(labels: Sequence[str], *, every: bool) -> dict[str, Any]:
    """Return a numeric axis that shows a label per position, so that equal tokens keep rows of their own.

    Args:
        labels: what to read at positions 0, 1, …
        every: True to show each label; False to let Plotly leave out what does not fit.
    """
    texts = [for_plotly(label, LABEL_LIMIT) for label in labels]
    axis: dict[str, Any] = {"range": [-0.5, len(labels) - 0.5]}
    if every:
        return axis | {"tickmode": "array", "tickvals": list(range(len(labels))), "ticktext": texts}
    return axis | {
        "tickmode": "auto",
        "tickformat": "d",
        "labelalias": {str(position): text for position, text in enumerate(texts)},
    }


def hover_texts(
    values: np.ndarray, allowed: np.ndarray | None, query_labels: Sequence[str], key_labels: Sequence[str]
) -> np.ndarray:
    """Return what each cell says on hover, str [query, key]: both tokens whole, their positions, the exact value."""
    rows = [f"query {at}: <b>{for_plotly(label, None)}</b>" for at, label in enumerate(query_labels)]
    columns = [f"key {at}: <b>{for_plotly(label, None)}</b>" for at, label in enumerate(key_labels)]
    texts = np.empty(values.shape, dtype=object)
    for row, query in enumerate(rows):
        for column, key in enumerate(columns):
            barred = allowed is not None and not allowed[row, column]
            value = "not allowed by the mask" if barred else f"weight <b>{values[row, column]:.6f}</b>"
            texts[row, column] = f"{query}<br>{key}<br>{value}"
    return texts


def weight_cells(
    weights: np.ndarray,
    allowed: np.ndarray | None,
    query_labels: Sequence[str],
    key_labels: Sequence[str],
    *,
    decimals: int | None = None,
    **options: Any,
) -> go.Heatmap:
    """Return a heatmap of weights [query, key]; cells that are not allowed have no value and let the hatch through."""
    values = weights.astype(np.float32)
    if allowed is not None:
        values = np.where(allowed, values, np.float32(np.nan))
    if values.size <= HOVER_CELLS:
        options |= {"hovertext": hover_texts(weights, allowed, query_labels, key_labels), "hoverinfo": "text"}
    else:
        options["hovertemplate"] = "query: <b>%{y}</b><br>key: <b>%{x}</b><br>weight <b>%{z:.6f}</b><extra></extra>"
    if decimals is not None:
        options |= {"texttemplate": f"%{{z:.{decimals}f}}"}
    gap = 1 if max(weights.shape) <= 40 else 0  # noqa: PLR2004
    return go.Heatmap(z=values, xgap=gap, ygap=gap, hoverongaps=True, **options)


def hatching(allowed: np.ndarray, theme: Theme) -> dict[str, Any] | None:
    """Return a layout image, in data coordinates, that hatches the cells [query, key] that are not allowed."""
    runs = _masked_runs(allowed)
    if not runs:
        return None
    rows, columns = allowed.shape
    step = max(0.25, max(rows, columns) / 160)
    path = "".join(f"M{start} {row}h{length}v1h-{length}z" for row, start, length in runs)
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {columns} {rows}' preserveAspectRatio='none'>"
        f"<pattern id='h' width='{step}' height='{step}' patternUnits='userSpaceOnUse' patternTransform='rotate(45)'>"
        f"<path d='M0 0V{step}' stroke='{theme.muted}' stroke-opacity='.45' stroke-width='{step / 4:.3f}'/></pattern>"
        f"<path d='{path}' fill='url(#h)'/></svg>"
    )
    return {
        "source": "data:image/svg+xml;utf8," + svg.replace("#", "%23").replace("<", "%3C").replace(">", "%3E"),
        "x": -0.5,
        "y": -0.5,
        "sizex": columns,
        "sizey": rows,
        "xanchor": "left",
        "yanchor": "top",
        "sizing": "stretch",
        "layer": "below",
    }


def _masked_runs(allowed: np.ndarray) -> list[tuple[int, int, int]]:
    """Return the (row, first column, length) of each run of cells that are not allowed."""
    barred = np.pad(~allowed, ((0, 0), (1, 1)))
    edges = np.diff(barred.astype(np.int8), axis=1)
    starts, stops = np.argwhere(edges == 1), np.argwhere(edges == -1)
    return [(int(row), int(start), int(stop - start)) for (row, start), (_, stop) in zip(starts, stops, strict=True)]
