"""The matrices of a computation with their numbers, the pairs of dimensions that make a score, and why √d_k."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from attnviz.analysis.scaling import MEASURES
from attnviz.analysis.steps import Step
from attnviz.errors import OptionError, ShapeError
from attnviz.plots.heatmap import (
    BELOW,
    EVERY_LABEL,
    HOVER_CELLS,
    KEY_AXIS,
    MASKED,
    QUERY_AXIS,
    as_array,
    checked_map,
    colour_axis,
    colour_bar,
    decimals_in,
    from_the_top,
    gaps,
    hatch,
    hover_texts,
    number_texts,
    numbered,
    numbers_in_cells,
    side,
    token_axis,
    weight_cells,
)
from attnviz.plots.theme import HEADS_BESIDE, THEMES, Ink, Theme, ThemeName, diverging_scale, style
from attnviz.tokens import for_plotly

CORNER = 9  # pixels of the mark of a changed cell
MOST_MARKED = 4_000
"""Changed cells that are marked each; of more, the map says what changed by its colours alone."""

SHORT = 3
"""Characters of the names of columns that stand level."""

FLOOR = 1e-9
"""The smallest limit of the colours, so that a matrix of zeros has the colour of 0."""

NAMES = {False: "q·k", True: "q·k ÷ √d_k"}
TITLES = {
    "variance": "variance<br>of the scores",
    "entropy": "entropy of the<br>weights, nats",
    "gradient": "gradient<br>of the softmax",
}
"""In two lines, so that three stand side by side on a page of 800 pixels."""


def plot_step(
    step: Step,
    *,
    selected_row: int | None = None,
    selected_cell: tuple[int, int] | None = None,
    before: Any = None,
    limit: float | None = None,
    theme: ThemeName = "light",
    ink: Ink = "sqrt",
) -> go.Figure:
    """Return a step's matrix as a map, with its numbers in the cells where they fit.

    Args:
        step: one of `attnviz.analysis.steps.steps`.
        selected_row: a row to frame in the accent colour, as that of the chosen query.
        selected_cell: (row, column) to frame as well.
        before: the matrix before an edit; cells that differ have a small mark in their upper right corner.
        limit: of vectors and scores, the absolute value of the strongest colours; the largest finite entry where left
            out. Pass one limit to figures that are to be compared.
        theme: "light" or "dark".
        ink: of weights, see `plot_head`.

    Returns:
        A figure whose first trace is the map: its z are the numbers, NaN where not allowed (of weights with the ink
        "row" the shares). Where cells differ from before, the second trace, "changed", has a point in each.

    Raises:
        ShapeError: the matrix before has another shape, or the step's labels do not fit its matrix.
        MaskError: the step's mask has another shape than its matrix.
    """
    colours = THEMES[theme]
    matrix, allowed = checked_map(step.matrix, step.allowed, step.row_labels, step.column_labels)
    rows, columns = matrix.shape
    weights = step.kind == "weights"
    cells = (
        _weight_cells(step, matrix, allowed, ink) if weights else _signed_cells(step, matrix, allowed, limit, colours)
    )
    figure = style(go.Figure(cells), colours)
    if weights:
        bar = colour_bar(colours, ink, "bottom") | BELOW
        figure.update_layout(coloraxis=colour_axis(colours, ink) | {"colorbar": bar})
    _name_axes(figure, step)
    hatch(figure, allowed, colours)
    if before is not None:
        _mark_changes(figure, matrix, before, colours)
    if selected_row is not None:
        figure.add_shape(_frame(selected_row, (0, columns), colours))
    if selected_cell is not None:
        row, column = selected_cell
        figure.add_shape(_frame(row, (column, column + 1), colours))
    figure.update_layout(height=side(rows) + 130, margin={"r": 40})  # the last label leans over the edge
    return figure


def plot_spread(table: Any, *, theme: ThemeName = "light") -> go.Figure:
    """Return three panels over the number of dimensions: spread of scores, entropy of weights, gradient of the softmax.

    Args:
        table: what `attnviz.analysis.scaling.score_spread` gives.
        theme: "light" or "dark".

    Returns:
        A figure with two curves in each panel, "q·k" and "q·k ÷ √d_k", with error bars of one standard error, and in
        the first panel, dotted, what theory says of each: d and 1.

    Raises:
        OptionError: the table has no row.
    """
    if not len(table):
        raise OptionError("Expected rows of score_spread, got none. Give it some dimensions.")
    colours, inks = THEMES[theme], HEADS_BESIDE[theme]
    figure = make_subplots(1, len(MEASURES), subplot_titles=[TITLES[measure] for measure in MEASURES])
    style(figure, colours)
    figure.update_annotations(font={"size": 13, "color": colours.text})
    for scaled, ink in ((False, inks[1]), (True, inks[0])):
        part = table[table["scaled"] == scaled].sort_values("dimension")
        for column, measure in enumerate(MEASURES, start=1):
            figure.add_trace(_curve(part, measure, NAMES[scaled], ink), row=1, col=column)
        theory = part["dimension"] ** (0 if scaled else 1)
        line = {"color": colours.muted, "dash": "dot", "width": 1}
        name = "1, by theory" if scaled else "d, by theory"
        figure.add_scatter(
            x=part["dimension"], y=theory, mode="lines", line=line, name=name, hoverinfo="skip", showlegend=False,
            row=1, col=1,
        )  # fmt: skip
    ticks = sorted(set(table["dimension"]))
    figure.update_xaxes(
        type="log", title_text="d_k", tickvals=ticks, ticktext=_some_texts(ticks), tickangle=0, showgrid=False
    )
    figure.update_yaxes(showgrid=True, gridcolor=colours.line)
    figure.update_yaxes(type="log", dtick=1, row=1, col=1)
    for column in range(2, len(MEASURES) + 1):
        figure.update_yaxes(rangemode="tozero", row=1, col=column)
    legend = {"orientation": "h", "x": 0, "yref": "container", "y": 0, "yanchor": "bottom"}
    figure.update_layout(height=340, showlegend=True, legend=legend, margin={"t": 48, "b": 80})
    return figure


def plot_products(table: Any, *, most: int = 24, title: str = "", theme: ThemeName = "light") -> go.Figure:
    """Return q⊙k, the products that add up to q·k, as bars from the largest; those left out are one last bar.

    Args:
        table: what `attnviz.analysis.arithmetic.dimension_products` gives.
        most: bars of dimensions at most.
        title: says of which query and key.
        theme: "light" or "dark".

    Returns:
        A figure whose bars add up to q·k.
    """
    colours = THEMES[theme]
    shown, rest = table.iloc[:most], table.iloc[most:]
    values, names = shown["product"].tolist(), [str(at) for at in shown["dimension"]]
    texts = [
        f"dimension {row.dimension}<br>{_signed(row.q)} · {_signed(row.k)} = <b>{_signed(row.product)}</b>"
        for row in shown.itertuples()
    ]
    if len(rest):
        values.append(float(rest["product"].sum()))
        names.append(f"{len(rest)} others")
        texts.append(f"{len(rest)} other dimensions together<br><b>{_signed(values[-1])}</b>")
    inks = [colours.diverging[-1] if value >= 0 else colours.diverging[0] for value in values]
    opacity = [1.0] * len(shown) + [0.5] * bool(len(rest))
    bars = go.Bar(
        y=values, marker={"color": inks, "opacity": opacity}, hovertext=texts, hoverinfo="text", showlegend=False
    )
    figure = style(go.Figure(bars), colours, title=title)
    figure.update_xaxes(token_axis(names, every=True), title_text="dimension, the largest |q·k| first", tickangle=-45)
    figure.update_yaxes(
        title_text="q × k", showgrid=True, gridcolor=colours.line, zeroline=True, zerolinecolor=colours.muted
    )
    figure.update_layout(height=280, bargap=0.25)
    return figure


def _weight_cells(step: Step, matrix: np.ndarray, allowed: np.ndarray | None, ink: Ink) -> go.Heatmap:
    """Return a map of weights."""
    return weight_cells(
        matrix,
        allowed,
        step.row_labels,
        step.column_labels,
        decimals=decimals_in(len(step.column_labels)),
        per_row=ink == "row",
        coloraxis="coloraxis",
    )


def _signed_cells(
    step: Step, matrix: np.ndarray, allowed: np.ndarray | None, limit: float | None, theme: Theme
) -> go.Heatmap:
    """Return a map of vectors or scores, coloured around 0; −∞ has no colour."""
    values = np.where(np.isfinite(matrix), matrix, np.float32(np.nan))
    if allowed is not None:
        values = np.where(allowed, values, np.float32(np.nan))
    limit = max(float(np.nanmax(np.abs(values), initial=0)) if limit is None else limit, FLOOR)
    title = {"text": f"strongest ink: ±{limit:.3g}", "side": "bottom", "font": {"size": 11, "color": theme.muted}}
    bar = {"thickness": 8, "outlinecolor": theme.line, "tickvals": [-limit, 0, limit], "tickformat": ".3~g"}
    return go.Heatmap(
        z=values,
        zmin=-limit,
        zmax=limit,
        colorscale=diverging_scale(theme),
        colorbar=bar | BELOW | {"title": title},
        **_hover(step, values),
        **numbers_in_cells(values, decimals_in(values.shape[1]), per_row=False),
        **gaps(values),
    )


def _hover(step: Step, values: np.ndarray) -> dict[str, Any]:
    """Return what a cell says on hover: a text of its own, or what the axes show where there are too many cells."""
    row, column = ("query", "key") if step.kind == "scores" else ("token", "dimension")
    if values.size <= HOVER_CELLS:
        texts = np.where(np.isnan(values), MASKED, number_texts("<b>{:.6f}</b>", values))
        rows, columns = numbered(row, step.row_labels), numbered(column, step.column_labels)
        if step.kind == "vectors":
            columns = [for_plotly(_dimension(label), None) for label in step.column_labels]
        return {"hovertext": hover_texts(rows, columns, texts), "hoverinfo": "text", "hoverongaps": True}
    across = "key %{x:d}: <b>%{x}</b>" if step.kind == "scores" else "dimension %{x}"
    template = f"{row} %{{y:d}}: <b>%{{y}}</b><br>{across}<br><b>%{{z:.6f}}</b><extra></extra>"
    return {"hovertemplate": template, "hoverongaps": False}


def _dimension(label: str) -> str:
    return f"dimension {label}" if label.isdigit() else label


def _name_axes(figure: go.Figure, step: Step) -> None:
    """Write tokens at the rows, and tokens or dimensions at the columns."""
    rows, columns = step.matrix.shape
    every = max(rows, columns) <= EVERY_LABEL
    across, down = (KEY_AXIS, QUERY_AXIS) if _is_map(step) else ("dimension", "token")
    level = not _is_map(step) and max(map(len, step.column_labels)) <= SHORT
    figure.update_xaxes(side="top", tickangle=0 if level else -45)
    figure.update_xaxes(token_axis(step.column_labels, every=every), title={"text": across, "standoff": 8})
    figure.update_yaxes(from_the_top(token_axis(step.row_labels, every=rows <= EVERY_LABEL)), title_text=down)


def _is_map(step: Step) -> bool:
    """Whether the columns are keys."""
    return step.kind != "vectors" and step.key != "sink"


def _mark_changes(figure: go.Figure, matrix: np.ndarray, before: Any, theme: Theme) -> None:
    """Put a small corner into each cell that differs from before; two −∞ are the same."""
    earlier = as_array(before)
    if earlier.shape != matrix.shape:
        raise ShapeError(f"Expected a matrix before of shape {list(matrix.shape)}, got {list(earlier.shape)}.")
    rows, columns = np.nonzero(matrix != earlier)
    if not 0 < len(rows) <= MOST_MARKED:
        return
    marker = {"symbol": "triangle-ne", "size": CORNER, "color": theme.text, "line": {"color": theme.page, "width": 1}}
    figure.add_scatter(
        x=columns + 0.44, y=rows - 0.42, mode="markers", marker=marker, hoverinfo="skip", name="changed",
        showlegend=False, cliponaxis=False,
    )  # fmt: skip


def _frame(row: int, columns: tuple[int, int], theme: Theme) -> dict[str, Any]:
    """Return the accent around the cells of a row from the first column to before the second."""
    ends = {"x0": columns[0] - 0.5, "x1": columns[1] - 0.5, "y0": row - 0.5, "y1": row + 0.5}
    return {"type": "rect", "line": {"color": theme.accent, "width": 2}, **ends}


def _curve(part: Any, measure: str, name: str, ink: str) -> go.Scatter:
    """Return a measure over the dimensions, with an error bar at each."""
    return go.Scatter(
        x=part["dimension"],
        y=part[measure],
        error_y={"array": part[f"{measure}_error"], "thickness": 1, "width": 3},
        mode="lines+markers",
        line={"color": ink, "width": 2},
        marker={"size": 5},
        name=name,
        legendgroup=name,
        showlegend=measure == MEASURES[0],
        hovertemplate=f"d_k = %{{x}}<br>{name}: <b>%{{y:.4~g}}</b> ± %{{error_y.array:.1~g}}<extra></extra>",
    )


def _some_texts(ticks: list[int]) -> list[str]:
    """Return the ticks' texts, up to 4 of them and the last among these, the others empty so that none touch."""
    step = math.ceil(len(ticks) / 4)
    return ["" if (len(ticks) - 1 - at) % step else f"{tick:,}" for at, tick in enumerate(ticks)]


def _signed(number: float) -> str:
    return f"{number:.4f}".replace("-", "−")
