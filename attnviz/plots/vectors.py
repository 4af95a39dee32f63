"""Vectors as a map of their entries, as points in a plane, and how alike every two of them are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnviz.plots.heatmap import HOVER_CELLS, as_array, gaps, hover_texts, number_texts, numbered, token_axis
from attnviz.plots.theme import THEMES, ThemeName, diverging_scale, style
from attnviz.tokens import for_plotly

ROW = 26  # pixels of a token's row
MOST_NUMBERS = 12
MOST_NAMES = 60


def plot_vectors(
    vectors: Any, labels: Sequence[str], *, title: str = "", limit: float | None = None, theme: ThemeName = "light"
) -> go.Figure:
    """Return vectors as a map [token, dimension], coloured around 0.

    Args:
        vectors: [token, d_model].
        labels: what stands at each row.
        title: says which vectors these are.
        limit: the absolute value of the strongest colours; the largest entry where left out. Pass one limit to
            two figures to compare them.
        theme: "light" or "dark".
    """
    colours = THEMES[theme]
    vectors = as_array(vectors)
    rows, columns = vectors.shape
    dimensions = [f"dimension {at}" for at in range(columns)]
    limit = max(float(np.abs(vectors).max(initial=0)) if limit is None else limit, 1e-9)
    figure = go.Figure(
        go.Heatmap(
            z=vectors,
            zmin=-limit,
            zmax=limit,
            colorscale=diverging_scale(colours),
            texttemplate="%{z:.4f}" if columns <= MOST_NUMBERS else None,
            **_hover(vectors, numbered("token", labels), dimensions, across="dimension %{x}"),
            colorbar={"thickness": 8, "outlinecolor": colours.line, "len": 0.9},
            **gaps(vectors),
        )
    )
    style(figure, colours, title=title)
    figure.update_layout(height=min(900, max(ROW * rows, 100) + 110))
    figure.update_xaxes(title_text="dimension", tickformat="d", dtick=1 if columns <= 16 else None)  # noqa: PLR2004
    figure.update_yaxes(
        token_axis(labels, every=rows <= MOST_NAMES) | {"range": [rows - 0.5, -0.5]}, title_text="token"
    )
    return figure


def plot_similarity(
    similarity: Any,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    title: str = "",
    theme: ThemeName = "light",
) -> go.Figure:
    """Return the cosine similarity of every pair [token, token], −1 to 1, coloured around 0."""
    colours = THEMES[theme]
    similarity = as_array(similarity)
    rows, columns = similarity.shape
    names = numbered("token", row_labels), numbered("token", column_labels)
    figure = go.Figure(
        go.Heatmap(
            z=similarity,
            zmin=-1,
            zmax=1,
            colorscale=diverging_scale(colours),
            texttemplate="%{z:.2f}" if columns <= MOST_NUMBERS else None,
            **_hover(similarity, names[0], names[1], across="token %{x:d}: <b>%{x}</b>", word="cosine similarity "),
            colorbar={"thickness": 8, "outlinecolor": colours.line, "len": 0.9},
            **gaps(similarity),
        )
    )
    style(figure, colours, title=title)
    figure.update_layout(height=min(700, max(ROW * rows, 180) + 120))
    figure.update_xaxes(token_axis(column_labels, every=columns <= MOST_NAMES), tickangle=-45)
    figure.update_yaxes(token_axis(row_labels, every=rows <= MOST_NAMES) | {"range": [rows - 0.5, -0.5]})
    return figure


def plot_movement(
    before: Any,
    after: Any,
    labels: Sequence[str],
    *,
    axis_titles: Sequence[str],
    title: str = "",
    theme: ThemeName = "light",
) -> go.Figure:
    """Return a plane with an arrow from each token's input to its output.

    Args:
        before: [token, 2], where the inputs stand.
        after: [token, 2], where the outputs stand.
        labels: the tokens.
        axis_titles: what the two axes are.
        title: says which vectors these are.
        theme: "light" or "dark".
    """
    colours = THEMES[theme]
    before, after = as_array(before), as_array(after)
    names = [for_plotly(label) for label in labels]
    text = {"mode": "markers+text" if len(names) <= MOST_NAMES else "markers", "textposition": "top center"}
    template = "%{hovertext}<br>%{x:.4f}, %{y:.4f}<extra></extra>"
    figure = go.Figure(
        [
            go.Scatter(
                x=before[:, 0],
                y=before[:, 1],
                hovertext=numbered("input", labels),
                hovertemplate=template,
                mode="markers",
                marker={"size": 9, "color": colours.page, "line": {"color": colours.muted, "width": 1.5}},
                name="input",
            ),
            go.Scatter(
                x=after[:, 0],
                y=after[:, 1],
                text=names,
                hovertext=numbered("output", labels),
                hovertemplate=template,
                marker={"size": 9, "color": colours.sequential[-1]},
                textfont={"color": colours.text},
                name="output",
                **text,
            ),
        ]
    )
    style(figure, colours, title=title)
    for start, end in zip(before, after, strict=True):
        figure.add_annotation(
            x=end[0], y=end[1], ax=start[0], ay=start[1], xref="x", yref="y", axref="x", ayref="y", text="",
            showarrow=True, arrowhead=3, arrowwidth=1.2, arrowcolor=colours.muted, standoff=5, startstandoff=5,
        )  # fmt: skip
    figure.update_layout(height=520, showlegend=True, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    axis = {"showgrid": True, "gridcolor": colours.line, "zeroline": True, "zerolinecolor": colours.line}
    across, up = (for_plotly(name, None) for name in axis_titles)
    figure.update_xaxes(title_text=across, **axis)
    figure.update_yaxes(title_text=up, scaleanchor="x", **axis)
    return figure


def _hover(
    values: np.ndarray, rows: Sequence[str], columns: Sequence[str], *, across: str, word: str = ""
) -> dict[str, Any]:
    """Return what a cell says on hover: a text of its own, or what the axes show where there are too many cells."""
    if values.size <= HOVER_CELLS:
        texts = number_texts(f"{word}<b>{{:.6f}}</b>", values)
        return {"hovertext": hover_texts(rows, columns, texts), "hoverinfo": "text"}
    return {"hovertemplate": f"token %{{y:d}}: <b>%{{y}}</b><br>{across}<br>{word}<b>%{{z:.6f}}</b><extra></extra>"}
