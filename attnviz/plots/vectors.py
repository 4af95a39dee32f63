"""Vectors: their entries, norms and likeness as maps, their places as points, and the next tokens read off them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnviz.plots.heatmap import (
    HOVER_CELLS,
    as_array,
    colour_bar,
    from_the_top,
    gaps,
    hover_texts,
    number_texts,
    numbered,
    token_axis,
)
from attnviz.plots.theme import THEMES, Theme, ThemeName, diverging_scale, sequential_scale, style
from attnviz.tokens import for_plotly

ROW = 26  # pixels of a token's row
MOST_NUMBERS = 12
MOST_NAMES = 60
MOST_ARROWS = 200
MOST_WORDS, WORD_LIMIT = 40, 10  # words stand in the cells of so many columns, cut to so many characters


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


def plot_norms(
    norms: Any, labels: Sequence[str], set_names: Sequence[str], *, title: str = "", theme: ThemeName = "light"
) -> go.Figure:
    """Return how long vectors are as a map [set, token], the first set on top, inked by the square root of the norm.

    Args:
        norms: [set, token], 0 or more.
        labels: the tokens.
        set_names: what each set is, such as "input" or "after layer 3".
        title: says which vectors these are.
        theme: "light" or "dark".
    """
    colours, norms = THEMES[theme], as_array(norms)
    largest = max(float(np.nanmax(norms, initial=0)), 1e-9)  # one start token may be a hundred times as long as others
    figure = go.Figure(
        go.Heatmap(
            z=norms,
            zmin=0,
            zmax=largest,
            colorscale=sequential_scale(colours),
            texttemplate="%{z:.3~g}" if norms.shape[1] <= MOST_NUMBERS else None,
            **_set_hover(norms, set_names, labels),
            colorbar=colour_bar(colours, "sqrt", "right", largest, "norm"),
            **gaps(norms),
        )
    )
    style(figure, colours, title=title)
    _set_axes(figure, labels, set_names)
    return figure


def plot_lens(
    tokens: Any,
    probabilities: Any,
    labels: Sequence[str],
    set_names: Sequence[str],
    *,
    positions: Sequence[int] | None = None,
    title: str = "",
    theme: ThemeName = "light",
) -> go.Figure:
    """Return the likeliest next token of each place as a map [set, token] of words, inked by their probability.

    Args:
        tokens: str [set, token, rank], what would be said next, the likeliest first; hover shows all of them.
        probabilities: [set, token, rank], 0 to 1.
        labels: the tokens after which it would be said.
        set_names: what each set is, such as "input" or "after layer 3"; the first is on top.
        positions: where these tokens stand, for hover; 0, 1, … where left out.
        title: says which model this is.
        theme: "light" or "dark".
    """
    colours, tokens = THEMES[theme], np.asarray(tokens, dtype=object)
    probabilities = as_array(probabilities)
    best = probabilities[..., 0]
    words = np.vectorize(lambda token: for_plotly(token, WORD_LIMIT), otypes=[object])(tokens[..., 0])
    shown = {"text": words, "texttemplate": "%{text}"} if len(labels) <= MOST_WORDS else {}
    places = range(len(labels)) if positions is None else positions
    names = [f"after token {at}: <b>{for_plotly(label, None)}</b>" for at, label in zip(places, labels, strict=True)]
    figure = go.Figure(
        go.Heatmap(
            z=best,
            zmin=0,
            zmax=1,
            colorscale=sequential_scale(colours, "linear"),
            hovertext=hover_texts(_escaped(set_names), names, _ranked(tokens, probabilities)),
            hoverinfo="text",
            colorbar=colour_bar(colours, "linear", "right", measure="probability"),
            **shown,
            **gaps(best),
        )
    )
    style(figure, colours, title=title)
    _set_axes(figure, labels, set_names)
    return figure


def _ranked(tokens: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return a line for each token of a cell, str [set, token], of [set, token, rank]."""
    names = np.vectorize(lambda token: for_plotly(token, None), otypes=[object])(tokens)
    lines = number_texts("<b>{:.4f}</b> ", probabilities) + names
    return np.apply_along_axis(lambda cell: np.array("<br>".join(cell), dtype=object), -1, lines)


def _set_hover(values: np.ndarray, set_names: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    """Return what a cell [set, token] says on hover: a text of its own, or what the axes show where there are many."""
    if values.size <= HOVER_CELLS:
        texts = number_texts("norm <b>{:.6g}</b>", values)
        return {"hovertext": hover_texts(_escaped(set_names), numbered("token", labels), texts), "hoverinfo": "text"}
    return {"hovertemplate": "%{y}<br>token %{x:d}: <b>%{x}</b><br>norm <b>%{z:.6g}</b><extra></extra>"}


def _set_axes(figure: go.Figure, labels: Sequence[str], set_names: Sequence[str]) -> None:
    """Give a map [set, token] its axes, the first set on top."""
    rows = len(set_names)
    figure.update_layout(height=min(900, max(ROW * rows, 60) + 130))
    figure.update_xaxes(token_axis(labels, every=len(labels) <= MOST_NAMES), tickangle=-45)
    figure.update_yaxes(from_the_top(token_axis(set_names, every=rows <= MOST_NAMES)))


def _escaped(names: Sequence[str]) -> list[str]:
    return [for_plotly(name, None) for name in names]


def plot_movement(
    steps: Sequence[Any],
    labels: Sequence[str],
    *,
    axis_titles: Sequence[str],
    step_names: Sequence[str] = ("input", "output"),
    title: str = "",
    theme: ThemeName = "light",
) -> go.Figure:
    """Return a plane, or a space to turn, in which each token goes from step to step, such as from input to output.

    In the plane an arrow ends each path. The first points are open, the last filled and named.

    Args:
        steps: where the tokens stand, [token, 2] or [token, 3] each, at least two.
        labels: the tokens.
        axis_titles: what the axes are, as many as there are dimensions.
        step_names: what each step is.
        title: says which vectors these are.
        theme: "light" or "dark".
    """
    colours = THEMES[theme]
    path = np.stack([as_array(step) for step in steps])  # [step, token, dimension]
    titles = _escaped(axis_titles)
    in_space = path.shape[-1] == 3  # noqa: PLR2004
    points = [_step_points(path, at, labels, step_names[at], colours) for at in range(len(path))]
    figure = go.Figure([*([] if _has_arrows_alone(path) else [_lines(path, colours)]), *points])
    style(figure, colours, title=title)
    figure.update_layout(height=520, showlegend=True, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    if in_space:
        plain = {"gridcolor": colours.line, "zerolinecolor": colours.line, "showbackground": False}
        axes = {f"{name}axis": plain | {"title": {"text": text}} for name, text in zip("xyz", titles, strict=True)}
        figure.update_layout(scene={"aspectmode": "data", **axes})
        return figure
    if path.shape[1] <= MOST_ARROWS:
        for start, end in zip(path[-2], path[-1], strict=True):
            figure.add_annotation(
                x=end[0], y=end[1], ax=start[0], ay=start[1], xref="x", yref="y", axref="x", ayref="y", text="",
                showarrow=True, arrowhead=3, arrowwidth=1.2, arrowcolor=colours.muted, standoff=5, startstandoff=5,
            )  # fmt: skip
    axis = {"showgrid": True, "gridcolor": colours.line, "zeroline": True, "zerolinecolor": colours.line}
    figure.update_xaxes(title_text=titles[0], **axis)
    figure.update_yaxes(title_text=titles[1], scaleanchor="x", **axis)
    return figure


def _has_arrows_alone(path: np.ndarray) -> bool:
    """Whether arrows join all points of [step, token, dimension], so that no line is needed."""
    return path.shape[0] == 2 and path.shape[2] == 2 and path.shape[1] <= MOST_ARROWS  # noqa: PLR2004


def _coordinates(points: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of [point, dimension] by the names of the axes."""
    return dict(zip("xyz", points.T, strict=False))


def _trace_of(points: np.ndarray) -> Any:
    return go.Scatter3d if points.shape[-1] == 3 else go.Scatter  # noqa: PLR2004


def _lines(path: np.ndarray, colours: Theme) -> Any:
    """Return a line through each token's points of [step, token, dimension], with a gap before the next token's."""
    gap = np.full((1, *path.shape[1:]), np.nan, dtype=path.dtype)
    joined = np.concatenate([path, gap]).swapaxes(0, 1).reshape(-1, path.shape[-1])
    line = {"color": colours.muted, "width": 1.2}
    return _trace_of(joined)(**_coordinates(joined), mode="lines", line=line, hoverinfo="skip", showlegend=False)


def _step_points(path: np.ndarray, at: int, labels: Sequence[str], name: str, colours: Theme) -> Any:
    """Return the points of one step: open the first, named the last, in between the fuller the later."""
    points, last = path[at], len(path) - 1
    template = "%{hovertext}<br>" + ", ".join(f"%{{{axis}:.4f}}" for axis in "xyz"[: points.shape[1]])
    size = 9 if at in (0, last) else 5
    colour = colours.page if at == 0 else colours.sequential[max(1, round(at / last * (len(colours.sequential) - 1)))]
    marker: dict[str, Any] = {"size": size * (2 / 3 if points.shape[1] == 3 else 1), "color": colour}  # noqa: PLR2004
    shown: dict[str, Any] = {"mode": "markers"}
    if at == 0:
        marker |= {"line": {"color": colours.muted, "width": 1.5}}
    if at == last and len(labels) <= MOST_NAMES:
        names = [for_plotly(label) for label in labels]
        shown = {"mode": "markers+text", "text": names, "textposition": "top center"}
    return _trace_of(points)(
        **_coordinates(points),
        **shown,
        textfont={"color": colours.text},
        hovertext=numbered(name, labels),
        hovertemplate=template + "<extra></extra>",
        marker=marker,
        name=for_plotly(name, None),
    )


def _hover(
    values: np.ndarray, rows: Sequence[str], columns: Sequence[str], *, across: str, word: str = ""
) -> dict[str, Any]:
    """Return what a cell says on hover: a text of its own, or what the axes show where there are too many cells."""
    if values.size <= HOVER_CELLS:
        texts = number_texts(f"{word}<b>{{:.6f}}</b>", values)
        return {"hovertext": hover_texts(rows, columns, texts), "hoverinfo": "text"}
    return {"hovertemplate": f"token %{{y:d}}: <b>%{{y}}</b><br>{across}<br>{word}<b>%{{z:.6f}}</b><extra></extra>"}
