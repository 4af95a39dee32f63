"""The pieces a map of numbers is drawn with: cells, token axes, hover text, colours, hatching of masked cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from attnviz.errors import MaskError, ShapeError
from attnviz.plots.theme import Ink, Theme, sequential_scale
from attnviz.tokens import for_plotly

HOVER_CELLS = 10_000
"""Up to this many cells each has a hover text of its own; above, hover is put together from the axes."""

QUERY_AXIS = "query: attends from"
KEY_AXIS = "key: attended to"
EVERY_LABEL = 64
CELL = 34  # pixels of a cell, before a long text makes cells smaller
LARGEST, SMALLEST = 620, 230  # pixels of the side of a map
LEGENDS: dict[Ink, str] = {
    "sqrt": "{} (√ ink)",
    "linear": "{} (linear ink)",
    "row": "share of the row's largest {}",
}
WEIGHT = "attention weight"
BELOW = {"orientation": "h", "len": 0.5, "x": 0, "xanchor": "left", "y": 0, "yanchor": "top", "ypad": 14}
"""Where the legend stands when the labels of the columns are above the map."""

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
    word: str = "weight",
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
        texts = number_texts(f"{word} <b>{{:.6f}}</b>", values)
        texts = texts if allowed is None else np.where(allowed, texts, MASKED)
        hover = hover_texts(numbered("query", query_labels), numbered("key", key_labels), texts)
        options |= {"hovertext": hover, "hoverinfo": "text", "hoverongaps": True}
    else:
        query, key = "query %{y:d}: <b>%{y}</b>", "key %{x:d}: <b>%{x}</b>"
        weight = "customdata" if per_row else "z"
        options["hovertemplate"] = f"{query}<br>{key}<br>{word} <b>%{{{weight}:.6f}}</b><extra></extra>"
        options["hoverongaps"] = False
    options |= numbers_in_cells(values, decimals, per_row=per_row) | gaps(values)
    return go.Heatmap(z=shares(values) if per_row else values, **options)


def numbers_in_cells(values: np.ndarray, decimals: int | None, *, per_row: bool) -> dict[str, Any]:
    """Return what writes the values into their cells; with `per_row` these are not the map's z.

    Plotly's templates for the texts of a heatmap know x, y, z and text, but no customdata.
    """
    if decimals is None:
        return {}
    if not per_row:
        return {"texttemplate": f"%{{z:.{decimals}f}}"}
    texts = np.where(np.isnan(values), "", number_texts(f"{{:.{decimals}f}}", values))
    return {"text": texts, "texttemplate": "%{text}"}


def gaps(values: np.ndarray) -> dict[str, int]:
    """Return the pixels between the cells of a map."""
    gap = 1 if max(values.shape) <= 40 else 0  # noqa: PLR2004
    return {"xgap": gap, "ygap": gap}


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


def checked_map(
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


def from_the_top(axis: dict[str, Any]) -> dict[str, Any]:
    """Return an axis that counts downwards, so that the first row is on top."""
    return axis | {"range": axis["range"][::-1]}


def decimals_in(columns: int) -> int | None:
    """Return how many decimals fit into a cell."""
    for most, decimals in ((8, 4), (12, 3), (18, 2)):
        if columns <= most:
            return decimals
    return None


def side(length: int) -> int:
    """Return the pixels of a side of a map with so many cells."""
    return max(SMALLEST, min(LARGEST, CELL * length))


def colour_axis(theme: Theme, ink: Ink, largest: float = 1.0) -> dict[str, Any]:
    """Return the scale of weights, or of other numbers from 0 to `largest`."""
    return {"colorscale": sequential_scale(theme, ink), "cmin": 0, "cmax": largest}


def colour_bar(theme: Theme, ink: Ink, side: str, largest: float = 1.0, measure: str = WEIGHT) -> dict[str, Any]:
    """Return a thin legend with its title at a side; it stands at the right of the maps."""
    shares: tuple[float, ...] = (0, 0.25, 0.5, 0.75, 1)
    if ink == "sqrt":
        shares = (0, 0.25, 0.5, 1) if largest == 1 else (0, 0.25, 1)
    return {
        "thickness": 8,
        "outlinecolor": theme.line,
        "tickvals": [share * largest for share in shares],
        "tickangle": 0,
        "tickformat": "" if largest == 1 else ".3~g",
        "title": {
            "text": LEGENDS[ink].format(measure.rpartition(" ")[2] if ink == "row" else measure),
            "side": side,
            "font": {"size": 11, "color": theme.muted},
        },
    }


def hatch(figure: go.Figure, allowed: np.ndarray | None, theme: Theme, **place: int) -> None:
    """Hatch the cells that are not allowed."""
    image = None if allowed is None else hatching(allowed, theme)
    if image is not None:
        figure.add_layout_image(image if place else image | {"xref": "x", "yref": "y"}, **place)
