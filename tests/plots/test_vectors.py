"""Vectors, similarities and movements by their data."""

import json

import numpy as np
import pytest
import torch

from attnviz.plots import plot_movement, plot_similarity, plot_vectors
from attnviz.plots.theme import DARK, LIGHT

WORDS = ["the", "<s>", "$x$", "the", "e" * 300]
SHOWN = ["the", "&lt;s&gt;", "&#36;x&#36;", "the", "e" * 23 + "…"]


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("theme", "colours"), [("light", LIGHT), ("dark", DARK)])
def test_vectors_are_their_numbers_around_the_page(theme, colours):
    vectors = normal(5, 7)
    figure = plot_vectors(vectors, WORDS, title="<s>", theme=theme)
    (cells,) = figure.data
    assert cells.z.dtype == np.float32
    assert np.array_equal(cells.z, vectors.numpy())
    assert cells.zmax == -cells.zmin == pytest.approx(vectors.abs().max().item())
    assert dict(cells.colorscale)[0.5] == colours.page
    assert figure.layout.yaxis.range == (4.5, -0.5)
    assert figure.layout.yaxis.ticktext == tuple(SHOWN)
    assert figure.layout.title.text == "&lt;s&gt;"
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("dimension", "token")
    assert cells.hovertext[1][6] == f"token 1: <b>&lt;s&gt;</b><br>dimension 6<br><b>{vectors[1, 6]:.6f}</b>"
    assert "e" * 300 in cells.hovertext[4][0]
    assert json.loads(figure.to_json())["data"][0]["z"]["dtype"] == "f4"


def test_two_maps_of_vectors_can_share_a_limit():
    figure = plot_vectors(normal(5, 7), WORDS, limit=9)
    assert (figure.data[0].zmin, figure.data[0].zmax) == (-9, 9)
    assert plot_vectors(torch.zeros(5, 7), WORDS).data[0].zmax > 0


@pytest.mark.parametrize(("dimension", "numbers"), [(12, True), (13, False), (384, False)])
def test_numbers_stand_in_the_cells_where_they_fit(dimension, numbers):
    assert (plot_vectors(normal(5, dimension), WORDS).data[0].texttemplate is not None) == numbers


def test_similarity_runs_from_minus_one_to_one():
    similarity = torch.tensor([[1, -1, 0], [0.5, torch.nan, 0.25]])
    figure = plot_similarity(similarity, WORDS[:2], WORDS[2:], title="$")
    (cells,) = figure.data
    np.testing.assert_array_equal(cells.z, similarity.numpy())
    assert (cells.zmin, cells.zmax) == (-1, 1)
    assert figure.layout.yaxis.ticktext == tuple(SHOWN[:2])
    assert figure.layout.xaxis.ticktext == tuple(SHOWN[2:])
    assert figure.layout.yaxis.range == (1.5, -0.5)
    expected = "token 1: <b>&lt;s&gt;</b><br>token 0: <b>&#36;x&#36;</b><br>cosine similarity <b>0.500000</b>"
    assert cells.hovertext[1][0] == expected


@pytest.mark.parametrize(
    "figure",
    [
        plot_vectors(normal(27, 384), ["the"] * 27),
        plot_similarity(normal(101, 101), ["the"] * 101, ["the"] * 101),
    ],
)
def test_many_cells_have_no_text_each_and_hover_reads_the_axes(figure):
    (cells,) = figure.data
    assert cells.hovertext is None
    assert cells.texttemplate is None
    for part in ("%{y:d}", "%{y}", "%{x", "%{z:.6f}"):
        assert part in cells.hovertemplate


def test_an_arrow_leads_from_each_input_to_its_output():
    before, after = normal(5, 2), normal(5, 2) + 1
    figure = plot_movement(before, after, WORDS, axis_titles=("<1>", "$2$"), title="<s>")
    points = {trace.name: np.stack([trace.x, trace.y], axis=1) for trace in figure.data}
    np.testing.assert_allclose(points["input"], before, rtol=1e-6)
    np.testing.assert_allclose(points["output"], after, rtol=1e-6)
    for arrow, start, end in zip(figure.layout.annotations, before, after, strict=True):
        assert (arrow.ax, arrow.ay, arrow.x, arrow.y) == pytest.approx([*start.tolist(), *end.tolist()])
        assert (arrow.axref, arrow.ayref, arrow.showarrow) == ("x", "y", True)
    assert figure.data[1].text == tuple(SHOWN)
    assert figure.data[0].hovertext[3] == "input 3: <b>the</b>"
    assert figure.data[1].hovertext[4] == f"output 4: <b>{'e' * 300}</b>"
    titles = [figure.layout.title, figure.layout.xaxis.title, figure.layout.yaxis.title]
    assert [title.text for title in titles] == ["&lt;s&gt;", "&lt;1&gt;", "&#36;2&#36;"]
    assert figure.layout.yaxis.scaleanchor == "x"  # angles and lengths as they are
