"""The pieces a map of numbers is drawn with: cells, token axes, hover text, hatching of masked cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from attnviz.plots.theme import Theme
from attnviz.tokens import for_plotly

HOVER_CELLS = 10_000
"""Up to this many cells each has a hover text of its own; above, hover is put together from the axes."""

LABEL_LIMIT = 24
MASKED = "not allowed by the mask"


def as_array(values: Any) -> np.ndarray:
    """Return numbers as a float32 array, wherever a tensor of them lives; Plotly sends those as bytes."""
    return np.asarray(values.detach().float().cpu() if isinstance(values, Tensor) else values, dtype=np.float32)


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
        "tickformat": "~f",  # not "d": between two tokens, seen when zoomed in, 4.5 must not become token 5
        "labelalias": {str(position): text for position, text in enumerate(texts)},
    }


def numbered(word: str, labels: Sequence[str]) -> list[str]:
    """Return what to call each token on hover: its position and the whole of its label."""
    return [f"{word} {at}: <b>{for_plotly(label, None)}</b>" for at, label in enumerate(labels)]


def number_texts(form: str, values: np.ndarray) -> np.ndarray:
    """Return each value written into a form such as "weight <b>{:.6f}</b>", str of the same shape."""
    return np.vectorize(form.format, otypes=[object])(values)


def hover_texts(rows: Sequence[str], columns: Sequence[str], values: np.ndarray) -> np.ndarray:
    """Return what each cell says on hover, str [row, column]: its row, its column, its value (str [row, column])."""
    names = np.array([[f"{row}<br>{column}<br>" for column in columns] for row in rows], dtype=object)
    return names + values


def weight_cells(
    weights: np.ndarray,
    allowed: np.ndarray | None,
    query_labels: Sequence[str],
    key_labels: Sequence[str],
    *,
    decimals: int | None = None,
    most_texts: int = HOVER_CELLS,
    per_row: bool = False,
    **options: Any,
) -> go.Heatmap:
    """Return a heatmap of weights [query, key]; cells that are not allowed have no value and let the hatch through.

    With more than `most_texts` cells hover shows tokens as the axes do, and nothing over cells that are not allowed.
    `per_row` colours a cell by its share of the row's largest weight; what is written stays the weight.
    """
    values = as_array(weights)
    if allowed is not None:
        values = np.where(allowed, values, np.float32(np.nan))
    if per_row:
        options |= {"customdata": values}
    if values.size <= most_texts:
        texts = number_texts("weight <b>{:.6f}</b>", values)
        texts = texts if allowed is None else np.where(allowed, texts, MASKED)
        hover = hover_texts(numbered("query", query_labels), numbered("key", key_labels), texts)
        options |= {"hovertext": hover, "hoverinfo": "text", "hoverongaps": True}
    else:
        query, key = "query %{y:d}: <b>%{y}</b>", "key %{x:d}: <b>%{x}</b>"
        weight = "customdata" if per_row else "z"
        options["hovertemplate"] = f"{query}<br>{key}<br>weight <b>%{{{weight}:.6f}}</b><extra></extra>"
        options["hoverongaps"] = False
    if decimals is not None:
        options |= {"texttemplate": f"%{{{'customdata' if per_row else 'z'}:.{decimals}f}}"}
    gap = 1 if max(values.shape) <= 40 else 0  # noqa: PLR2004
    return go.Heatmap(z=shares(values) if per_row else values, xgap=gap, ygap=gap, **options)


def shares(values: np.ndarray) -> np.ndarray:
    """Return each value [query, key] as a share of the largest of its row; 0 where a row has nothing."""
    largest = np.fmax.reduce(values, axis=1, keepdims=True, initial=0)
    return np.divide(values, largest, out=np.where(np.isnan(values), values, 0), where=largest > 0)


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
