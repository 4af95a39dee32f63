"""Two maps and their difference, and how far all heads are from each other: as a map, a tree and points."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots

from attnviz.analysis.comparison import difference
from attnviz.analysis.head_distances import FARTHEST
from attnviz.errors import ShapeError
from attnviz.plots.heatmap import (
    BELOW,
    CELL,
    EVERY_LABEL,
    HOVER_CELLS,
    KEY_AXIS,
    LARGEST,
    MASKED,
    QUERY_AXIS,
    SMALLEST,
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
    shares,
    side,
    token_axis,
)
from attnviz.plots.theme import THEMES, Ink, Theme, ThemeName, diverging_scale, sequential_scale, style
from attnviz.tokens import for_plotly

NAMES = ("A", "B", "B − A")
MAPS = len(NAMES)
WIDTH = 370  # pixels of each of three maps on a page of 1,280
FLOOR = 1e-6
"""The smallest limit of the colours of a difference, so that rounding does not look like one."""

LINE = 12
"""Pixels of height that a label takes."""

TREE = 0.16
"""The share of the height that a tree takes over its map."""

LAYER_INK = 2
"""The first of a theme's inks that stands out from the page, for points."""


def plot_comparison(
    left: Any,
    right: Any,
    query_labels: Sequence[str],
    key_labels: Sequence[str],
    *,
    left_allowed: Any = None,
    right_allowed: Any = None,
    titles: tuple[str, str] = ("A", "B"),
    selected: int | None = None,
    theme: ThemeName = "light",
    ink: Ink = "sqrt",
) -> go.Figure:
    """Return A, B and B − A side by side: A and B on one scale, the difference on its own around 0.

    Zooming one map zooms all.

    Args:
        left: A, [query, key], 0 to 1; cells that are not allowed may be NaN.
        right: B, the same shape.
        query_labels: what stands at each row.
        key_labels: what stands at each column.
        left_allowed: bool [query, key]; cells of A that are not allowed are hatched. NaN cells where left out.
        right_allowed: the same of B.
        titles: what stands over A and B.
        selected: a row to frame in the accent colour.
        theme: "light" or "dark".
        ink: "sqrt" makes small weights visible, "linear" does not; "row" is the share of the row's largest weight.

    Returns:
        A figure of three heatmaps. The z of the first two are the weights, NaN where not allowed (with the ink "row"
        the shares); that of the third is B − A, where a cell that is not allowed in one map counts as 0 there, NaN
        where it is in neither. Its colours end at the largest |B − A|, which the legend names.

    Raises:
        ShapeError: a map does not fit the labels.
        MaskError: a mask has another shape than the maps.
    """
    colours = THEMES[theme]
    maps = [
        _with_gaps(weights, allowed, query_labels, key_labels)
        for weights, allowed in ((left, left_allowed), (right, right_allowed))
    ]
    maps.append(difference(*map(torch.from_numpy, maps)).numpy())
    limit = max(float(np.nanmax(np.abs(maps[-1]), initial=0)), FLOOR)
    figure = style(make_subplots(1, MAPS, shared_xaxes="all", shared_yaxes="all", horizontal_spacing=0.03), colours)
    for at in range(MAPS):
        figure.add_trace(_cells(maps, at, query_labels, key_labels, ink=ink), row=1, col=at + 1)
        gaps = np.isnan(maps[at])
        hatch(figure, ~gaps if gaps.any() else None, colours, row=1, col=at + 1)
    _name_maps(figure, (*titles, NAMES[-1]), query_labels, key_labels)
    _put_legends(figure, colours, ink, limit)
    if selected is not None:
        figure.add_shape(_frame(selected, len(key_labels), colours), row=1, col="all")
    figure.update_layout(height=_height(len(query_labels), len(key_labels)) + 170, margin={"r": 40})
    return figure


def plot_head_distances(
    distance: Any,
    places: Sequence[tuple[int, int]],
    *,
    order: Sequence[int],
    linkage: Any,
    title: str = "",
    open_place: tuple[int, int] | None = None,
    theme: ThemeName = "light",
) -> go.Figure:
    """Return the Jensen–Shannon distance of every two heads as a map, alike heads together, under their tree.

    The nearer two heads are, the stronger the ink; the scale ends at 0 and at √ln 2, whatever the heads.

    Args:
        distance: [head, head], as `attnviz.analysis.head_distances.HeadDivergences.distance`.
        places: (layer, head) of each, in the order of `distance`.
        order: in which order heads stand, as `attnviz.analysis.head_distances.cluster` gives it.
        linkage: [head − 1, 4], the tree over them, as it gives it.
        title: says which heads these are.
        open_place: (layer, head), whose row is framed in the accent colour.
        theme: "light" or "dark".

    Returns:
        A figure whose first trace is the heatmap, in the given order, and whose second is the tree.

    Raises:
        ShapeError: distances, places, order and tree are not of as many heads.
    """
    colours, distance, linkage = THEMES[theme], as_array(distance), np.asarray(linkage, dtype=float)
    heads = len(places)
    if distance.shape != (heads, heads) or sorted(order) != list(range(heads)) or len(linkage) != heads - 1:
        raise ShapeError(
            f"Expected distances [{heads}, {heads}], an order and a tree of {heads} heads, got {list(distance.shape)}, "
            f"{len(order)} and {len(linkage) + 1}."
        )
    names = [f"{layer}.{head}" for layer, head in (places[at] for at in order)]
    figure = make_subplots(2, 1, shared_xaxes=True, row_heights=[TREE, 1 - TREE], vertical_spacing=0.01)
    style(figure, colours, title=title)
    cells = _distance_cells(distance[np.ix_(order, order)], [places[at] for at in order], names, colours)
    figure.add_trace(cells, row=2, col=1)
    figure.add_trace(_tree(linkage, order, colours), row=1, col=1)
    every = heads <= EVERY_LABEL
    figure.update_xaxes(token_axis(names, every=every))
    figure.update_xaxes(title_text="layer.head", tickangle=-45, row=2, col=1)
    figure.update_yaxes(from_the_top(token_axis(names, every=every)), title_text="layer.head", row=2, col=1)
    figure.update_yaxes(showticklabels=False, rangemode="tozero", fixedrange=True, row=1, col=1)
    if open_place is not None:
        figure.add_shape(_frame(order.index(places.index(open_place)), heads, colours), row=2, col=1)
    figure.update_layout(height=round(side(heads) / (1 - TREE)) + 110)
    return figure


def plot_head_scatter(
    x: Any,
    y: Any,
    places: Sequence[tuple[int, int]],
    *,
    x_title: str,
    y_title: str,
    names: Sequence[str] | None = None,
    title: str = "",
    open_place: tuple[int, int] | None = None,
    marked: Sequence[tuple[int, int]] = (),
    theme: ThemeName = "light",
) -> go.Figure:
    """Return a point for each head, the stronger its ink the later its layer.

    Args:
        x: [head], such as a statistic; heads with NaN in either are left out.
        y: [head].
        places: (layer, head) of each.
        x_title: what `x` is, with its unit.
        y_title: what `y` is.
        names: [head], further lines of hover text for each, plain text with line breaks.
        title: says which heads these are.
        open_place: (layer, head) of the head in the accent colour.
        marked: the heads with a ring.
        theme: "light" or "dark".

    Returns:
        A figure whose first trace holds the heads, and whose second the open one, where there is one. Their customdata
        is [layer, head] of each point.

    Raises:
        ShapeError: x, y, places and names are not of as many heads.
    """
    colours, x, y = THEMES[theme], as_array(x), as_array(y)
    names = [""] * len(places) if names is None else names
    if not x.shape == y.shape == (len(places),) or len(names) != len(places):
        raise ShapeError(
            f"Expected an x, a y and a name for each of {len(places)} heads, got {list(x.shape)}, {list(y.shape)} and "
            f"{len(names)}."
        )
    shown = np.flatnonzero(np.isfinite(x) & np.isfinite(y)).tolist()
    opened = [at for at in shown if places[at] == open_place]
    figure = style(go.Figure(), colours, title=title)
    for group, name in (([at for at in shown if at not in opened], "heads"), (opened, "open head")):
        if group or name == "heads":
            points = _points(x, y, places, names, group, rings=set(marked), titles=(x_title, y_title), theme=colours)
            figure.add_trace(points.update(name=name))
    if opened:
        figure.data[1].marker.update(color=colours.accent, coloraxis=None, size=12)
    layers = [layer for layer, _ in places]
    figure.update_layout(height=520, coloraxis=_layer_axis(layers, colours))
    axis = {"showgrid": True, "gridcolor": colours.line}
    figure.update_xaxes(title_text=for_plotly(x_title, None), **axis)
    figure.update_yaxes(title_text=for_plotly(y_title, None), **axis)
    return figure


def _with_gaps(weights: Any, allowed: Any, query_labels: Sequence[str], key_labels: Sequence[str]) -> np.ndarray:
    """Return a map that fits its labels, NaN where not allowed."""
    weights, allowed = checked_map(weights, allowed, query_labels, key_labels)
    return weights if allowed is None else np.where(allowed, weights, np.float32(np.nan))


def _cells(maps: Sequence[np.ndarray], at: int, queries: Sequence[str], keys: Sequence[str], *, ink: Ink) -> go.Heatmap:
    """Return one of three maps, with the values of all three on hover and its own in the cells where they fit."""
    values, is_difference = maps[at], at == MAPS - 1
    per_row = ink == "row" and not is_difference
    beside = [which for which in range(MAPS) if per_row or which != at]  # what is not the z of this map
    fields = ["z"] * MAPS
    for place, which in enumerate(beside):
        fields[which] = f"customdata[{place}]"
    return go.Heatmap(
        z=shares(values) if per_row else values,
        customdata=np.stack([maps[which] for which in beside], axis=-1),
        coloraxis="coloraxis2" if is_difference else "coloraxis",
        **gaps(values),
        **_hover(maps, fields, queries, keys),
        **numbers_in_cells(values, decimals_in(2 * values.shape[1]), per_row=per_row),  # half as wide as one alone
    )


def _hover(
    maps: Sequence[np.ndarray], fields: Sequence[str], queries: Sequence[str], keys: Sequence[str]
) -> dict[str, Any]:
    """Return what cells say on hover: a text each, or, where there are too many, what `fields` of a cell hold."""
    if maps[0].size * MAPS**2 <= HOVER_CELLS:  # each of three maps says three values
        texts = hover_texts(numbered("query", queries), numbered("key", keys), _hover_values(maps))
        return {"hovertext": texts, "hoverinfo": "text", "hoverongaps": True}
    numbers = ", ".join(f"{name} %{{{field}:.6f}}" for name, field in zip(NAMES, fields, strict=True))
    tokens = "query %{y:d}: <b>%{y}</b><br>key %{x:d}: <b>%{x}</b>"
    return {"hovertemplate": f"{tokens}<br>{numbers}<extra></extra>", "hoverongaps": False}


def _hover_values(maps: Sequence[np.ndarray]) -> np.ndarray:
    """Return "A 0.677000, B 0.280000, B − A −0.397000" for each cell."""
    texts = [
        np.where(np.isnan(values), f"{name} {MASKED}", number_texts(f"{name} {{:.6f}}", values))
        for name, values in zip(NAMES, maps, strict=True)
    ]
    numbers = np.vectorize(lambda *parts: ", ".join(parts).replace("-", "−"), otypes=[object])(*texts)
    return np.where(np.isnan(maps[-1]), MASKED, numbers)


def _name_maps(
    figure: go.Figure, titles: Sequence[str], query_labels: Sequence[str], key_labels: Sequence[str]
) -> None:
    """Write tokens and titles beside three maps; a title is over the names of the keys, however long these are."""
    across, down = EVERY_LABEL // MAPS, _height(len(query_labels), len(key_labels)) // LINE
    figure.update_yaxes(from_the_top(token_axis(query_labels, every=len(query_labels) <= down)), nticks=down)
    figure.update_yaxes(title_text=QUERY_AXIS, col=1)
    every = len(key_labels) <= across
    figure.update_xaxes(token_axis(key_labels, every=every), nticks=across, side="top", tickangle=-45)
    for column, title in enumerate(titles, start=1):
        text = f"<b>{for_plotly(title, None)}</b><br>{KEY_AXIS}"
        figure.update_xaxes(title={"text": text, "standoff": 8}, col=column)


def _put_legends(figure: go.Figure, colours: Theme, ink: Ink, limit: float) -> None:
    """Put the scale of the weights under A and that of the difference under B − A."""
    weights = colour_axis(colours, ink) | {"colorbar": colour_bar(colours, ink, "bottom") | _under(figure, "xaxis")}
    bar = colour_bar(colours, ink, "bottom") | _under(figure, "xaxis3")
    bar["tickvals"], bar["tickformat"] = [-limit, 0, limit], ".2g"
    bar["title"] = bar["title"] | {"text": f"B − A (strongest ink: ±{limit:.2g})"}
    change = {"colorscale": diverging_scale(colours), "cmin": -limit, "cmax": limit, "colorbar": bar}
    figure.update_layout(coloraxis=weights, coloraxis2=change)


def _under(figure: go.Figure, axis: str) -> dict[str, Any]:
    """Return where a legend stands under a map."""
    start, stop = figure.layout[axis].domain
    return BELOW | {"x": start, "len": stop - start}


def _height(rows: int, columns: int) -> int:
    """Return the pixels of a map whose cells are about square on a page of 1,280."""
    return round(max(SMALLEST, min(LARGEST, min(CELL, WIDTH / columns) * rows)))


def _frame(row: int, columns: int, theme: Theme) -> dict[str, Any]:
    """Return the accent around a row."""
    ends = {"x0": -0.5, "x1": columns - 0.5, "y0": row - 0.5, "y1": row + 0.5}
    return {"type": "rect", "line": {"color": theme.accent, "width": 2}, **ends}


def _distance_cells(
    distance: np.ndarray, places: Sequence[tuple[int, int]], names: Sequence[str], theme: Theme
) -> go.Heatmap:
    """Return the map of distances; NaN, of heads that have no row in common, has no colour."""
    if distance.size <= HOVER_CELLS:
        heads = [_head_name(place) for place in places]
        known = number_texts("distance <b>{:.6f}</b>", distance)
        texts = np.where(np.isnan(distance), "no row with weights in both", known)
        options: dict[str, Any] = {"hovertext": hover_texts(heads, heads, texts), "hoverinfo": "text"}
    else:
        head = "layer.head <b>%{{{}}}</b><br>"
        options = {"hovertemplate": f"{head.format('y')}{head.format('x')}distance <b>%{{z:.6f}}</b><extra></extra>"}
    ink = [(1 - at, colour) for at, colour in reversed(sequential_scale(theme, "linear"))]
    title = {"text": "Jensen–Shannon distance", "side": "right", "font": {"size": 11, "color": theme.muted}}
    bar = {"thickness": 8, "outlinecolor": theme.line, "title": title, "len": 1 - TREE, "y": 0, "yanchor": "bottom"}
    return go.Heatmap(z=distance, zmin=0, zmax=FARTHEST, colorscale=ink, colorbar=bar, **options)


def _tree(linkage: np.ndarray, order: Sequence[int], theme: Theme) -> go.Scatter:
    """Return the tree as one line: from each pair of branches up to their distance, across, and down.

    `scipy.cluster.hierarchy.dendrogram` draws the same, but calls itself once a level: 1,000 equal heads are too deep.
    """
    heads = len(order)
    place, height = np.zeros(heads + len(linkage)), np.zeros(heads + len(linkage))
    place[list(order)] = range(heads)
    x, y = [], []
    for merged, (left, right, distance, _) in enumerate(linkage, start=heads):
        ends = [int(left), int(right)]
        x += [place[ends[0]], place[ends[0]], place[ends[1]], place[ends[1]], np.nan]
        y += [height[ends[0]], distance, distance, height[ends[1]], np.nan]
        place[merged], height[merged] = place[ends].mean(), distance
    return go.Scatter(
        x=np.array(x), y=np.array(y), mode="lines", line={"color": theme.muted, "width": 1}, hoverinfo="skip"
    )


def _points(
    x: np.ndarray,
    y: np.ndarray,
    places: Sequence[tuple[int, int]],
    names: Sequence[str],
    group: Sequence[int],
    *,
    rings: Container[tuple[int, int]],
    titles: tuple[str, str],
    theme: Theme,
) -> go.Scatter:
    """Return the points of some heads; a head of `rings` has a ring."""
    ringed = [places[at] in rings for at in group]
    lines = ["<b>layer %{customdata[0]} · head %{customdata[1]}</b>"]
    lines += [f"{for_plotly(title, None)} <b>%{{{at}:.6~f}}</b>" for at, title in zip("xy", titles, strict=True)]
    template = "<br>".join([*lines, "%{hovertext}<extra></extra>"])
    return go.Scatter(
        x=x[list(group)],
        y=y[list(group)],
        mode="markers",
        customdata=[list(places[at]) for at in group],
        hovertext=[_hover_lines(names[at]) for at in group],
        hovertemplate=template,
        marker={
            "size": 9,
            "color": [places[at][0] for at in group],
            "coloraxis": "coloraxis",
            "line": {
                "color": [theme.text if ring else theme.muted for ring in ringed],
                "width": [3 if ring else 0.5 for ring in ringed],
            },
        },
    )


def _hover_lines(text: str) -> str:
    return "<br>".join(for_plotly(line, None) for line in text.splitlines())


def _layer_axis(layers: Sequence[int], theme: Theme) -> dict[str, Any]:
    """Return the inks of layers; where there is one layer, all have the strongest."""
    inks = theme.sequential[LAYER_INK:]
    first, last = min(layers, default=0), max(layers, default=0)
    scale = [(at / (len(inks) - 1), ink) for at, ink in enumerate(inks)]
    font = {"size": 11, "color": theme.muted}
    bar = {"thickness": 8, "outlinecolor": theme.line, "title": {"text": "layer", "font": font}, "tickformat": "d"}
    step = max(1, round((last - first) / 6))
    return {
        "colorscale": scale,
        "cmin": first if first < last else first - 1,
        "cmax": last,
        "showscale": first < last,
        "colorbar": bar | {"dtick": step, "tick0": first},
    }


def _head_name(place: tuple[int, int]) -> str:
    return f"layer {place[0]} · head {place[1]}"
