"""Maps of heads by their data: values, axes, titles, the one colour scale."""

import base64
import json

import numpy as np
import plotly.graph_objects as go
import plotly.io
import pytest
import torch

from attnviz.attention import MultiHeadSelfAttention, causal_mask
from attnviz.errors import MaskError, ShapeError
from attnviz.plots import plot_head, plot_heads
from attnviz.plots.theme import DARK, LIGHT

QUERIES = ["the", "cat", "saw", "the", "dog"]
KEYS = ["le", "chat", "a", "vu", "le", "chien", "."]


def softmax(*shape):
    scores = np.random.default_rng(0).normal(size=shape)
    return (np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)).astype(np.float32)


def all_maps(figure):
    return [trace for trace in figure.data if isinstance(trace, go.Heatmap)]


@pytest.mark.parametrize("shape", [(5, 7), (1, 1), (5, 1), (1, 7)])
def test_a_map_is_the_weights_with_the_first_row_on_top(shape):
    weights = softmax(*shape)
    queries, keys = QUERIES[: shape[0]], KEYS[: shape[1]]
    figure = plot_head(torch.from_numpy(weights), queries, keys)
    (cells,) = figure.data
    assert type(cells.z) is np.ndarray
    assert cells.z.dtype == np.float32
    assert np.array_equal(cells.z, weights)
    assert figure.layout.yaxis.range == (shape[0] - 0.5, -0.5)
    assert figure.layout.xaxis.range == (-0.5, shape[1] - 0.5)
    assert figure.layout.yaxis.tickvals == tuple(range(shape[0]))
    assert figure.layout.yaxis.ticktext == tuple(queries)
    assert figure.layout.xaxis.ticktext == tuple(keys)
    assert figure.layout.yaxis.type is None
    assert cells.x is None  # numeric positions, not categories
    assert cells.coloraxis == "coloraxis"
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0, 1)
    assert not figure.layout.images


def test_axes_say_who_attends():
    figure = plot_head(softmax(5, 7), QUERIES, KEYS)
    assert figure.layout.yaxis.title.text == "query: attends from"
    assert figure.layout.xaxis.title.text == "key: attended to"
    assert figure.layout.yaxis.title.font.color == figure.layout.xaxis.title.font.color == LIGHT.muted


def test_a_title_may_quote_a_token():
    assert plot_head(softmax(5, 7), QUERIES, KEYS, title="<s> $1$").layout.title.text == "&lt;s&gt; &#36;1&#36;"


@pytest.mark.parametrize("as_mask", [np.array, torch.tensor, lambda mask: np.array(mask).astype(int)])
def test_masked_cells_are_empty_and_hatched(as_mask):
    allowed = np.tril(np.ones((5, 5), bool))
    figure = plot_head(softmax(5, 5), QUERIES, QUERIES, allowed=as_mask(allowed.tolist()))
    assert np.array_equal(np.isnan(figure.data[0].z), ~allowed)
    (image,) = figure.layout.images
    assert (image.xref, image.yref) == ("x", "y")
    assert not plot_head(softmax(5, 5), QUERIES, QUERIES, allowed=np.ones((5, 5), bool)).layout.images


@pytest.mark.parametrize(("columns", "decimals"), [(8, 4), (9, 3), (12, 3), (13, 2), (18, 2), (19, None)])
def test_cells_hold_as_many_decimals_as_fit(columns, decimals):
    cells = plot_head(softmax(2, columns), ["a", "b"], ["k"] * columns).data[0]
    assert cells.texttemplate == (f"%{{z:.{decimals}f}}" if decimals else None)


@pytest.mark.parametrize("selected", [0, 3])
@pytest.mark.parametrize(("theme", "colours"), [("light", LIGHT), ("dark", DARK)])
def test_a_selected_row_is_framed_in_the_accent(selected, theme, colours):
    (frame,) = plot_head(softmax(5, 7), QUERIES, KEYS, selected=selected, theme=theme).layout.shapes
    assert (frame.y0, frame.y1, frame.x0, frame.x1) == (selected - 0.5, selected + 0.5, -0.5, 6.5)
    assert frame.line.color == colours.accent
    assert not plot_head(softmax(5, 7), QUERIES, KEYS).layout.shapes


@pytest.mark.parametrize("ink", ["sqrt", "linear"])
def test_the_legend_says_its_ink_and_values_stay(ink):
    weights = softmax(5, 7)
    figure = plot_head(weights, QUERIES, KEYS, ink=ink, theme="dark")
    assert np.array_equal(figure.data[0].z, weights)
    assert figure.layout.coloraxis.colorscale[4][0] == {"sqrt": 0.25, "linear": 0.5}[ink]
    assert figure.layout.coloraxis.colorscale[0][1] == DARK.page
    assert {"sqrt": "√", "linear": "linear"}[ink] in figure.layout.coloraxis.colorbar.title.text


@pytest.mark.parametrize(("heads", "columns"), [(1, 4), (4, 4), (5, 4), (7, 3), (11, 1)])
def test_heads_side_by_side_each_with_its_title(heads, columns):
    weights = softmax(heads, 5, 7)
    figure = plot_heads(weights, QUERIES, KEYS, columns=columns)
    maps = all_maps(figure)
    assert len(maps) == len(figure.data) == heads
    assert all(np.array_equal(cells.z, weights[head]) for head, cells in enumerate(maps))
    assert [note.text for note in figure.layout.annotations] == [f"head {head}" for head in range(heads)]
    assert {cells.coloraxis for cells in maps} == {"coloraxis"}
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0, 1)
    across, down = list(figure.select_xaxes()), list(figure.select_yaxes())
    assert len(across) == len(down) == heads == len({cells.xaxis for cells in maps})
    assert all(axis.range == (4.5, -0.5) for axis in down)
    assert all(axis.ticktext == tuple(KEYS) or axis.labelalias["1"] == "chat" for axis in across)


@pytest.mark.parametrize(("heads", "columns", "named"), [(5, 4, [1, 2, 3, 4]), (8, 4, [4, 5, 6, 7]), (2, 4, [0, 1])])
def test_the_last_map_of_each_column_names_its_keys_and_the_first_of_each_row_its_queries(heads, columns, named):
    figure = plot_heads(softmax(heads, 5, 7), QUERIES, KEYS, columns=columns)
    titles = [axis.title.text for axis in figure.select_xaxes()]
    assert [head for head, title in enumerate(titles) if title == "key: attended to"] == named
    assert all(axis.showticklabels for head, axis in enumerate(figure.select_xaxes()) if head in named)
    rows = [head for head, axis in enumerate(figure.select_yaxes()) if axis.title.text == "query: attends from"]
    assert rows == list(range(0, heads, columns))


def test_the_legend_of_many_heads_stands_beside_them():
    bar = plot_heads(softmax(4, 5, 7), QUERIES, KEYS).layout.coloraxis.colorbar
    assert bar.orientation in {None, "v"}
    assert (bar.x, bar.xanchor) in {(None, None), (1.02, "left")}


@pytest.mark.parametrize("per_head", [False, True])
def test_each_head_is_hatched_by_its_own_mask(per_head):
    masks = np.random.default_rng(3).random((3, 5, 7)) < 0.6 if per_head else np.tril(np.ones((5, 7), bool))
    figure = plot_heads(softmax(3, 5, 7), QUERIES, KEYS, allowed=masks)
    for head, cells in enumerate(all_maps(figure)):
        assert np.array_equal(np.isnan(cells.z), ~(masks[head] if per_head else masks))
    assert [(image.xref, image.yref) for image in figure.layout.images] == [("x", "y"), ("x2", "y2"), ("x3", "y3")]


def test_titles_of_heads_are_shown_and_not_obeyed():
    figure = plot_heads(softmax(2, 5, 7), QUERIES, KEYS, titles=["<s>", "$x$"])
    assert [note.text for note in figure.layout.annotations] == ["&lt;s&gt;", "&#36;x&#36;"]


def test_many_heads_share_the_number_of_hover_texts():
    labels = [f"t{at}" for at in range(60)]
    assert all_maps(plot_heads(softmax(2, 60, 60), labels, labels))[1].hovertext is not None
    assert all(cells.hovertext is None for cells in all_maps(plot_heads(softmax(3, 60, 60), labels, labels)))


@pytest.mark.parametrize(
    ("plot", "weights", "options", "error", "numbers"),
    [
        (plot_head, softmax(7, 5), {}, ShapeError, r"5 × 7 labels, got \[7, 5\]"),
        (plot_head, softmax(2, 5, 7), {}, ShapeError, r"\[query, key\].*got \[2, 5, 7\]"),
        (plot_heads, softmax(5, 7), {}, ShapeError, r"\[head, query, key\].*got \[5, 7\]"),
        (plot_heads, softmax(2, 5, 7), {"titles": ["one"]}, ShapeError, "2 heads, got 1"),
        (plot_head, softmax(5, 7), {"allowed": np.zeros((7, 5), bool)}, MaskError, r"\[5, 7\].*got \[7, 5\]"),
        (plot_heads, softmax(2, 5, 7), {"allowed": np.zeros((3, 5, 7), bool)}, MaskError, r"got \[3, 5, 7\]"),
    ],
)
def test_what_does_not_fit_is_said_with_both_numbers(plot, weights, options, error, numbers):
    with pytest.raises(error, match=numbers):
        plot(weights, QUERIES, KEYS, **options)


def test_weights_travel_as_bytes_and_come_back():
    weights, allowed = softmax(2, 5, 5), np.tril(np.ones((5, 5), bool))
    text = plot_heads(weights, QUERIES, QUERIES, allowed=allowed).to_json()
    sent = json.loads(text)["data"]
    assert all(set(cells["z"]) == {"bdata", "dtype", "shape"} and cells["z"]["dtype"] == "f4" for cells in sent)
    back = plotly.io.from_json(text)
    kept = np.where(allowed, weights[1], np.float32(np.nan))
    came = np.frombuffer(base64.b64decode(all_maps(back)[1].z["bdata"]), dtype=np.float32)
    np.testing.assert_array_equal(came.reshape(5, 5), kept)


def test_a_large_map_is_little_more_than_its_bytes():
    size = 512
    labels = ["the", "<s>"] * (size // 2)
    weights, allowed = softmax(size, size), np.tril(np.ones((size, size), bool))
    text = plot_head(weights, labels, labels, allowed=allowed).to_json()
    assert len(text) < 1.7 * size * size * 4  # base64 of the weights, its slashes escaped, and little else


def test_a_trace_is_drawn_as_it_is():
    torch.manual_seed(0)
    trace = MultiHeadSelfAttention(12, 3).trace(torch.randn(5, 12), tokens=QUERIES, mask=causal_mask(5))
    labels = trace.query_tokens().labels
    cells = plot_head(trace.weights(0, 2), labels, labels, allowed=trace.allowed(0)).data[0]
    expected = trace.weights(0, 2).masked_fill(~trace.allowed(0), torch.nan)
    np.testing.assert_array_equal(cells.z, expected.numpy())


@pytest.mark.parametrize("tokens", [5, 101])  # with a hover text per cell, and without
def test_per_row_ink_colours_by_the_share_and_writes_the_weight(tokens):
    weights = softmax(tokens, tokens)
    weights[2] = 0  # a row in which nothing is allowed
    allowed = np.tril(np.ones((tokens, tokens), bool))
    allowed[2] = False
    labels = [f"t{at}" for at in range(tokens)]
    figure = plot_head(weights, labels, labels, allowed=allowed, ink="row")
    (cells,) = figure.data
    kept = np.where(allowed, weights, 0)
    largest = np.maximum(kept.max(1, keepdims=True), 1e-30)
    assert np.nan_to_num(cells.z) == pytest.approx(kept / largest, abs=1e-6)
    assert np.array_equal(np.isnan(cells.z), ~allowed)
    assert np.array_equal(np.nan_to_num(cells.customdata), kept)
    if tokens == 5:
        assert cells.texttemplate == "%{text}"
        assert [float(text or 0) for text in np.ravel(cells.text)] == pytest.approx(kept.ravel(), abs=5.1e-5)
        assert f"{weights[4, 1]:.6f}" in cells.hovertext[4, 1]
    else:
        assert "%{customdata:.6f}" in cells.hovertemplate
    assert figure.layout.coloraxis.colorbar.title.text == "share of the row's largest weight"


@pytest.mark.parametrize(("heads", "most"), [(1, 64), (3, 21), (7, 16)])
def test_several_maps_name_as_many_tokens_as_fit_beside_each(heads, most):
    for tokens in (most, most + 1):
        names = [f"token {at}" for at in range(tokens)]
        figure = plot_heads(torch.full((heads, tokens, tokens), 1 / tokens), names, names)
        for axis in (figure.layout.xaxis, figure.layout.yaxis):
            assert axis.nticks == most
            assert (axis.tickmode == "array") == (tokens == most)
