"""Comparisons and distances of heads by their data."""

import json

import numpy as np
import pytest
import torch
from scipy.cluster import hierarchy
from scipy.spatial.distance import pdist, squareform

from attnviz.analysis.head_distances import FARTHEST, cluster
from attnviz.errors import MaskError, ShapeError
from attnviz.plots.compare import FLOOR, plot_comparison, plot_head_distances, plot_head_scatter
from attnviz.plots.theme import DARK, LIGHT

QUERIES = ["the", "<s>", "it", "the", "$x$"]
KEYS = ["le", "chat → chien", "a", "vu", "le", "chien", "."]


def softmax(*shape, seed=0):
    scores = np.random.default_rng(seed).normal(size=shape)
    return (np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)).astype(np.float32)


def labels(count):
    return [f"t{at}" for at in range(count)]


# A, B and B − A


@pytest.mark.parametrize(("theme", "colours"), [("light", LIGHT), ("dark", DARK)])
def test_two_maps_on_one_scale_and_their_difference_around_0(theme, colours):
    left, right = softmax(5, 7), softmax(5, 7, seed=1)
    figure = plot_comparison(torch.from_numpy(left), right, QUERIES, KEYS, theme=theme)
    a, b, change = figure.data
    assert np.array_equal(a.z, left)
    assert np.array_equal(b.z, right)
    np.testing.assert_array_equal(change.z, right - left)
    assert all(cells.z.dtype == np.float32 for cells in figure.data)
    assert (a.coloraxis, b.coloraxis, change.coloraxis) == ("coloraxis", "coloraxis", "coloraxis2")
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0, 1)
    assert figure.layout.coloraxis.colorscale[4][0] == 0.25  # √ ink
    limit = np.abs(right - left).max()
    around = figure.layout.coloraxis2
    assert around.cmax == -around.cmin == pytest.approx(limit)
    assert dict(around.colorscale)[0.5] == colours.page
    assert around.colorbar.title.text == f"B − A (strongest ink: ±{limit:.2g})"
    assert around.colorbar.tickvals == (-limit, 0, limit)


def test_equal_maps_have_no_ink_in_their_difference():
    figure = plot_comparison(softmax(5, 7), softmax(5, 7), QUERIES, KEYS)
    assert not figure.data[2].z.any()
    assert figure.layout.coloraxis2.cmax == FLOOR


def test_every_cell_names_both_tokens_and_all_three_values():
    left, right = softmax(5, 7), softmax(5, 7, seed=1)
    figure = plot_comparison(left, right, QUERIES, KEYS)
    change = f"{right[1, 6] - left[1, 6]:.6f}".replace("-", "−")
    expected = (
        f"query 1: <b>&lt;s&gt;</b><br>key 6: <b>.</b><br>A {left[1, 6]:.6f}, B {right[1, 6]:.6f}, B − A {change}"
    )
    assert [cells.hovertext[1, 6] for cells in figure.data] == [expected] * 3
    assert any("B − A −0." in text for text in figure.data[0].hovertext.flat)
    assert figure.data[0].hovertext[4, 1].startswith("query 4: <b>&#36;x&#36;</b><br>key 1: <b>chat → chien</b>")


@pytest.mark.parametrize("ink", ["sqrt", "row"])
def test_large_maps_read_all_three_values_from_their_arrays(ink):
    left, right = softmax(31, 37), softmax(31, 37, seed=1)
    figure = plot_comparison(left, right, labels(31), labels(37), ink=ink)
    values = {"A": left, "B": right, "B − A": right - left}
    for cells in figure.data:
        assert cells.hovertext is None
        for name, expected in values.items():
            field = cells.hovertemplate.split(f"{name} %{{")[1].split(":")[0]
            found = cells.z if field == "z" else cells.customdata[..., int(field.removeprefix("customdata[")[:-1])]
            np.testing.assert_array_equal(found, expected)
        assert "query %{y:d}: <b>%{y}</b><br>key %{x:d}: <b>%{x}</b>" in cells.hovertemplate
    assert json.loads(figure.to_json())["data"][0]["customdata"]["dtype"] == "f4"


def test_row_ink_is_the_share_of_each_maps_own_rows_and_leaves_the_difference():
    left, right = softmax(5, 3), softmax(5, 3, seed=1)
    figure = plot_comparison(left, right, QUERIES, KEYS[:3], ink="row")
    a, b, change = figure.data
    np.testing.assert_allclose(a.z, left / left.max(1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(b.z, right / right.max(1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(change.z, right - left)
    for cells, values in ((a, left), (b, right)):
        assert cells.texttemplate == "%{text}"
        assert cells.text.tolist() == [[f"{value:.4f}" for value in row] for row in values]
    assert change.texttemplate == "%{z:.4f}"
    assert figure.layout.coloraxis.colorbar.title.text.startswith("share of the row's largest")
    left[2, 1] = np.nan
    assert plot_comparison(left, right, QUERIES, KEYS[:3], ink="row").data[0].text[2, 1] == ""


@pytest.mark.parametrize("given", ["masks", "NaN"])
def test_masked_cells_are_empty_hatched_and_told(given):
    causal, every = np.tril(np.ones((5, 5), bool)), np.ones((5, 5), bool)
    every[4, 0] = causal[4, 0] = False
    left, right = softmax(5, 5), softmax(5, 5, seed=1)
    if given == "NaN":
        gaps = [np.where(mask, values, np.nan) for mask, values in ((causal, left), (every, right))]
        figure = plot_comparison(*gaps, QUERIES, QUERIES)
    else:
        figure = plot_comparison(left, right, QUERIES, QUERIES, left_allowed=torch.tensor(causal), right_allowed=every)
    a, b, change = figure.data
    assert np.array_equal(np.isnan(a.z), ~causal)
    assert np.array_equal(np.isnan(b.z), ~every)
    assert np.array_equal(np.isnan(change.z), ~every)
    assert change.z[0, 3] == right[0, 3]  # not allowed in A: there it is 0
    assert change.hovertext[0, 3].endswith(f"A not allowed by the mask, B {right[0, 3]:.6f}, B − A {right[0, 3]:.6f}")
    assert a.hovertext[4, 0].endswith("<br>not allowed by the mask")
    assert a.hoverongaps is True
    assert [(image.xref, image.yref) for image in figure.layout.images] == [("x", "y"), ("x2", "y2"), ("x3", "y3")]
    assert len({image.source for image in figure.layout.images}) == 2  # B and the difference have the same gaps


def test_zooming_one_map_zooms_all():
    figure = plot_comparison(softmax(5, 7), softmax(5, 7), QUERIES, KEYS)
    across, down = list(figure.select_xaxes()), list(figure.select_yaxes())
    assert {cells.xaxis for cells in figure.data} == {"x", "x2", "x3"}
    assert [axis.matches for axis in across] == [None, "x", "x"]
    assert [axis.matches for axis in down] == [None, "y", "y"]
    assert all(axis.range == (-0.5, 6.5) and axis.ticktext == tuple(KEYS) for axis in across)
    assert all(axis.range == (4.5, -0.5) for axis in down)
    assert [axis.showticklabels for axis in down] == [None, False, False]
    assert figure.layout.yaxis.ticktext == ("the", "&lt;s&gt;", "it", "the", "&#36;x&#36;")


def test_each_map_has_its_title_over_its_keys():
    figure = plot_comparison(softmax(5, 7), softmax(5, 7), QUERIES, KEYS, titles=("A: <s>", "B: layer 3"))
    titles = [axis.title.text for axis in figure.select_xaxes()]
    assert titles == [f"<b>{name}</b><br>key: attended to" for name in ("A: &lt;s&gt;", "B: layer 3", "B − A")]
    assert all(axis.side == "top" for axis in figure.select_xaxes())
    assert figure.layout.yaxis.title.text == "query: attends from"
    assert figure.layout.yaxis2.title.text is None
    bars = figure.layout.coloraxis.colorbar, figure.layout.coloraxis2.colorbar
    assert bars[0].x + bars[0].len <= figure.layout.xaxis2.domain[0] <= figure.layout.xaxis3.domain[0] == bars[1].x


@pytest.mark.parametrize(("tokens", "every"), [(21, True), (22, False)])
def test_labels_are_thinned_where_they_would_not_fit(tokens, every):
    figure = plot_comparison(softmax(tokens, tokens), softmax(tokens, tokens), labels(tokens), labels(tokens))
    for axis in (figure.layout.xaxis, figure.layout.xaxis3):
        assert (axis.tickmode == "array") == every
        assert (axis.labelalias is None) == every
        assert axis.nticks == 21


@pytest.mark.parametrize(("tokens", "every"), [(30, True), (31, False), (59, False)])
def test_rows_are_named_where_a_line_of_text_fits_and_else_as_many_as_fit(tokens, every):
    figure = plot_comparison(softmax(tokens, tokens), softmax(tokens, tokens), labels(tokens), labels(tokens))
    inside = figure.layout.height - 170  # what stands over and under the maps
    for axis in (figure.layout.yaxis, figure.layout.yaxis3):
        assert (axis.tickmode == "array") == every == (tokens * 12 <= inside)
        assert axis.nticks == inside // 12


@pytest.mark.parametrize(("columns", "decimals"), [(4, 4), (6, 3), (9, 2), (10, None)])
def test_numbers_stand_in_the_cells_where_they_fit(columns, decimals):
    cells = plot_comparison(softmax(2, columns), softmax(2, columns), labels(2), labels(columns)).data
    assert {one.texttemplate for one in cells} == {f"%{{z:.{decimals}f}}" if decimals else None}


def test_a_selected_row_is_framed_in_every_map():
    figure = plot_comparison(softmax(5, 7), softmax(5, 7), QUERIES, KEYS, selected=2)
    frames = figure.layout.shapes
    assert [(frame.xref, frame.yref) for frame in frames] == [("x", "y"), ("x2", "y2"), ("x3", "y3")]
    assert {(frame.x0, frame.x1, frame.y0, frame.y1) for frame in frames} == {(-0.5, 6.5, 1.5, 2.5)}
    assert {frame.line.color for frame in frames} == {LIGHT.accent}
    assert not plot_comparison(softmax(5, 7), softmax(5, 7), QUERIES, KEYS).layout.shapes


@pytest.mark.parametrize(("rows", "columns", "height"), [(16, 16, 370), (7, 7, 238), (2, 2, 230), (200, 16, 620)])
def test_cells_are_about_square_on_a_page_of_1280(rows, columns, height):
    figure = plot_comparison(softmax(rows, columns), softmax(rows, columns), labels(rows), labels(columns))
    assert figure.layout.height == height + 170
    assert figure.layout.width is None


def test_maps_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match=r"5 × 7 labels, got \[5, 6\]"):
        plot_comparison(softmax(5, 7), softmax(5, 6), QUERIES, KEYS)
    with pytest.raises(MaskError, match=r"got \[7, 5\]"):
        plot_comparison(softmax(5, 7), softmax(5, 7), QUERIES, KEYS, right_allowed=np.ones((7, 5)))


# Distances of heads


def heads_at(count, per_layer=4, seed=0):
    points = np.random.default_rng(seed).normal(size=(count, 2)) / 9
    distance = squareform(pdist(points))
    return distance, [(3 + at // per_layer, at % per_layer) for at in range(count)]


def test_distances_stand_in_the_order_of_the_tree():
    distance, places = heads_at(11)
    order, tree = cluster(distance)
    figure = plot_head_distances(distance, places, order=order, linkage=tree, title="<all>", open_place=(4, 1))
    cells, branches = figure.data
    np.testing.assert_allclose(cells.z, distance[np.ix_(order, order)], rtol=1e-6)
    names = tuple("{}.{}".format(*places[at]) for at in order)
    assert figure.layout.xaxis2.ticktext == figure.layout.yaxis2.ticktext == names
    assert figure.layout.yaxis2.range == (10.5, -0.5)
    one, other = places[order[2]], places[order[7]]
    assert cells.hovertext[2, 7] == (
        "layer {} · head {}<br>layer {} · head {}<br>".format(*one, *other)
        + f"distance <b>{np.float32(distance[order[2], order[7]]):.6f}</b>"
    )
    assert (cells.zmin, cells.zmax) == (0, FARTHEST)
    assert cells.colorscale[0] == (0, LIGHT.sequential[-1])  # near: the strongest ink
    assert cells.colorscale[-1] == (1, LIGHT.page)
    assert figure.layout.xaxis.matches == "x2"
    assert (branches.xaxis, branches.yaxis, cells.xaxis, cells.yaxis) == ("x", "y", "x2", "y2")
    (frame,) = figure.layout.shapes
    assert (frame.y0 + frame.y1) / 2 == order.index(places.index((4, 1)))
    assert (frame.xref, frame.yref) == ("x2", "y2")
    assert figure.layout.title.text == "&lt;all&gt;"


def branches_of(x, y):
    """The lines of a tree as a set of rounded brackets."""
    brackets = zip(np.reshape(x, (-1, 4)), np.reshape(y, (-1, 4)), strict=True)
    return {tuple(sorted(zip(np.round(xs, 6), np.round(ys, 6), strict=True))) for xs, ys in brackets}


@pytest.mark.parametrize("count", [2, 3, 47])
def test_the_tree_is_scipys(count):
    distance, places = heads_at(count)
    order, tree = cluster(distance)
    line = plot_head_distances(distance, places, order=order, linkage=tree).data[1]
    expected = hierarchy.dendrogram(tree, no_plot=True)
    kept = ~np.isnan(line.x)
    found = branches_of(line.x[kept], line.y[kept])
    assert found == branches_of((np.array(expected["icoord"]) - 5) / 10, expected["dcoord"])
    assert len(found) == count - 1
    assert np.flatnonzero(~kept).tolist() == list(range(4, 5 * (count - 1), 5))


def test_one_head_has_no_tree():
    figure = plot_head_distances([[0.0]], [(0, 0)], order=(0,), linkage=np.zeros((0, 4)))
    assert figure.data[0].z.tolist() == [[0]]
    assert not len(figure.data[1].x)


def test_a_thousand_equal_heads_are_not_too_deep():
    count = 1024
    tree = hierarchy.linkage(np.zeros(count * (count - 1) // 2), "average")
    order = hierarchy.leaves_list(tree).tolist()
    places = [(at // 32, at % 32) for at in range(count)]
    figure = plot_head_distances(np.zeros((count, count)), places, order=order, linkage=tree)
    assert len(figure.data[1].x) == 5 * (count - 1)
    assert figure.data[0].hovertext is None
    for part in ("<b>%{x}</b>", "<b>%{y}</b>", "distance <b>%{z:.6f}</b>"):
        assert part in figure.data[0].hovertemplate
    assert figure.layout.yaxis2.labelalias["0"] == "{}.{}".format(*places[order[0]])


def test_a_distance_that_is_not_known_says_so():
    distance = np.array([[0, np.nan], [np.nan, 0]])
    order, tree = cluster(distance)
    cells = plot_head_distances(distance, [(0, 0), (0, 1)], order=order, linkage=tree).data[0]
    assert cells.hovertext[0, 1].endswith("no row with weights in both")


def test_a_tree_of_other_heads_is_refused():
    distance, places = heads_at(5)
    order, tree = cluster(distance)
    for wrong in ({"order": order[:-1]}, {"linkage": tree[1:]}, {"order": [0] * 5}):
        with pytest.raises(ShapeError, match=r"tree of 5 heads, got \[5, 5\]"):
            plot_head_distances(distance, places, **{"order": order, "linkage": tree} | wrong)
    with pytest.raises(ShapeError, match=r"Expected distances \[4, 4\]"):
        plot_head_distances(distance, places[:4], order=order, linkage=tree)


# Scatter


PLACES = [(1, 0), (1, 1), (4, 0), (4, 1), (9, 0)]
X, Y = [0.0, 1.0, np.nan, 3.0, 4.0], [5.0, 6.0, 7.0, 8.5, np.inf]


def scatter(**options):
    return plot_head_scatter(X, Y, PLACES, x_title="entropy [nats]", y_title="<b>", **options)


def test_heads_are_points_that_name_themselves():
    figure = scatter(title="$")
    (points,) = figure.data
    assert points.x.tolist() == [0, 1, 3]  # without those that have no number
    assert points.y.tolist() == [5, 6, 8.5]
    assert [list(place) for place in points.customdata] == [[1, 0], [1, 1], [4, 1]]
    assert points.hovertemplate.startswith("<b>layer %{customdata[0]} · head %{customdata[1]}</b><br>")
    assert "entropy [nats] <b>%{x:.6~f}</b><br>&lt;b&gt; <b>%{y:.6~f}</b>" in points.hovertemplate
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("entropy [nats]", "&lt;b&gt;")
    assert figure.layout.title.text == "&#36;"


@pytest.mark.parametrize(("theme", "colours"), [("light", LIGHT), ("dark", DARK)])
def test_ink_rises_with_the_layer(theme, colours):
    figure = scatter(theme=theme)
    assert figure.data[0].marker.color == (1, 1, 4)
    axis = figure.layout.coloraxis
    assert (axis.cmin, axis.cmax, axis.showscale) == (1, 9, True)
    assert [ink for _, ink in axis.colorscale] == list(colours.sequential[2:])
    assert axis.colorbar.title.text == "layer"


def test_one_layer_has_the_strongest_ink_and_no_legend():
    axis = plot_head_scatter([1, 2], [3, 4], [(0, 0), (0, 1)], x_title="", y_title="").layout.coloraxis
    assert (axis.cmin, axis.cmax, axis.showscale) == (-1, 0, False)


def test_the_open_head_has_the_accent_and_marked_ones_a_ring():
    figure = scatter(open_place=(1, 1), marked=[(1, 0), (1, 1)], theme="dark")
    others, opened = figure.data
    assert [list(place) for place in others.customdata] == [[1, 0], [4, 1]]
    assert [list(place) for place in opened.customdata] == [[1, 1]]
    assert opened.marker.color == DARK.accent
    assert opened.marker.coloraxis is None
    assert others.marker.line.width == (3, 0.5)
    assert others.marker.line.color == (DARK.text, DARK.muted)
    assert opened.marker.line.width == (3,)
    assert len(scatter(open_place=(4, 0)).data) == 1  # open, but without a number


def test_each_head_may_say_more():
    names = ["induction\n0.5 <s>", "", "", "", ""]
    points = scatter(names=names).data[0]
    assert points.hovertext == ("induction<br>0.5 &lt;s&gt;", "", "")
    assert "%{hovertext}" in points.hovertemplate


def test_numbers_and_heads_are_as_many():
    with pytest.raises(ShapeError, match=r"each of 4 heads, got \[5\], \[5\] and 4"):
        plot_head_scatter(X, Y, PLACES[:4], x_title="", y_title="")
    with pytest.raises(ShapeError, match=r"each of 5 heads, got \[5\], \[5\] and 1"):
        scatter(names=["one"])


def test_no_head_at_all_is_an_empty_picture():
    figure = plot_head_scatter([np.nan], [1.0], [(0, 0)], x_title="", y_title="", open_place=(0, 0))
    assert not len(figure.data[0].x)
