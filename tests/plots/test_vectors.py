"""Vectors, similarities and movements by their data."""

import json

import numpy as np
import pytest
import torch

from attnviz.plots.theme import DARK, LIGHT
from attnviz.plots.vectors import plot_lens, plot_movement, plot_norms, plot_similarity, plot_vectors

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


def points_of(figure):
    """The points of each step by its name, [token, dimension]."""
    steps = [trace for trace in figure.data if "markers" in trace.mode]
    return {step.name: np.stack([step[axis] for axis in "xyz" if axis in step], axis=1) for step in steps}


def test_an_arrow_leads_from_each_input_to_its_output():
    before, after = normal(5, 2), normal(5, 2) + 1
    figure = plot_movement([before, after], WORDS, axis_titles=("<1>", "$2$"), title="<s>")
    points = points_of(figure)
    np.testing.assert_allclose(points["input"], before, rtol=1e-6)
    np.testing.assert_allclose(points["output"], after, rtol=1e-6)
    for arrow, start, end in zip(figure.layout.annotations, before, after, strict=True):
        assert (arrow.ax, arrow.ay, arrow.x, arrow.y) == pytest.approx([*start.tolist(), *end.tolist()])
        assert (arrow.axref, arrow.ayref, arrow.showarrow) == ("x", "y", True)
    assert figure.data[0].text is None
    assert figure.data[1].text == tuple(SHOWN)
    assert figure.data[0].hovertext[3] == "input 3: <b>the</b>"
    assert figure.data[1].hovertext[4] == f"output 4: <b>{'e' * 300}</b>"
    titles = [figure.layout.title, figure.layout.xaxis.title, figure.layout.yaxis.title]
    assert [title.text for title in titles] == ["&lt;s&gt;", "&lt;1&gt;", "&#36;2&#36;"]
    assert figure.layout.yaxis.scaleanchor == "x"  # angles and lengths as they are


@pytest.mark.parametrize("dimensions", [2, 3])
def test_a_path_goes_through_every_step_of_its_token(dimensions):
    steps, names = normal(4, 5, dimensions), ["input", "<1>", "2", "output"]
    figure = plot_movement(steps, WORDS, axis_titles=["a", "b", "c"][:dimensions], step_names=names)
    lines, points = figure.data[0], points_of(figure)
    assert list(points) == ["input", "&lt;1&gt;", "2", "output"]
    for step, found in zip(steps, points.values(), strict=True):
        np.testing.assert_array_equal(found, step)
    joined = np.stack([lines[axis] for axis in "xyz"[:dimensions]], axis=1).reshape(5, 5, dimensions)
    np.testing.assert_array_equal(joined[:, :4], steps.transpose(0, 1))
    assert np.isnan(joined[:, 4]).all()  # no line leads on to the next token
    assert (lines.mode, lines.hoverinfo, lines.showlegend) == ("lines", "skip", False)
    assert len(figure.layout.annotations) == (5 if dimensions == 2 else 0)


def test_in_space_lines_lead_from_input_to_output():
    before, after = normal(5, 3), normal(5, 3) + 1
    figure = plot_movement([before, after], WORDS, axis_titles=("<1>", "$2$", "3"), theme="dark")
    assert {trace.type for trace in figure.data} == {"scatter3d"}
    assert [trace.mode for trace in figure.data] == ["lines", "markers", "markers+text"]
    np.testing.assert_array_equal(points_of(figure)["output"], after)
    scene = figure.layout.scene
    assert [axis.title.text for axis in (scene.xaxis, scene.yaxis, scene.zaxis)] == ["&lt;1&gt;", "&#36;2&#36;", "3"]
    assert (scene.aspectmode, scene.xaxis.gridcolor) == ("data", DARK.line)
    assert figure.data[2].text == tuple(SHOWN)
    assert "%{z:.4f}" in figure.data[2].hovertemplate


def test_many_tokens_have_a_line_each_in_place_of_arrows_and_names():
    figure = plot_movement(normal(2, 201, 2), ["the"] * 201, axis_titles=("1", "2"))
    assert not figure.layout.annotations
    assert [trace.mode for trace in figure.data] == ["lines", "markers", "markers"]


def test_norms_are_inked_from_zero_with_the_first_set_on_top():
    lengths = torch.tensor([[0.5, 2, 3, 4, 5], [7, 11, 0, 1300, 17]])
    figure = plot_norms(lengths, WORDS, ["input", "<after>"], title="$")
    (cells,) = figure.data
    np.testing.assert_array_equal(cells.z, lengths.numpy())
    assert (cells.zmin, cells.zmax) == (0, 1300)
    assert cells.colorscale[0] == (0, LIGHT.page)
    assert figure.layout.yaxis.range == (1.5, -0.5)
    assert figure.layout.yaxis.ticktext == ("input", "&lt;after&gt;")
    assert figure.layout.xaxis.ticktext == tuple(SHOWN)
    assert cells.hovertext[1][3] == "&lt;after&gt;<br>token 3: <b>the</b><br>norm <b>1300</b>"
    assert plot_norms(torch.zeros(2, 5), WORDS, ["a", "b"]).data[0].zmax > 0
    many = plot_norms(torch.ones(31, 400), ["the"] * 400, list(map(str, range(31)))).data[0]
    assert many.hovertext is None
    assert "%{z:.6g}" in many.hovertemplate


def test_a_lens_writes_the_likeliest_token_and_hovers_all():
    tokens = np.array([[["a", "<b>"], ["$x$", "c"]], [["d" * 30, "e"], ["%{x}", "g"]], [["h", "i"], ["j", "k"]]])
    chances = torch.tensor([[[0.5, 0.25], [0.75, 0.125]], [[1, 0], [0.5, 0.4]], [[0.3, 0.2], [0.1, 0.05]]])
    figure = plot_lens(tokens, chances, ["the", "<s>"], ["input", "after layer 0", "<1>"], positions=[7, 11])
    (cells,) = figure.data
    np.testing.assert_array_equal(cells.z, chances[..., 0])
    assert (cells.zmin, cells.zmax) == (0, 1)
    assert cells.text.tolist() == [["a", "&#36;x&#36;"], ["d" * 9 + "…", "&#37;{x}"], ["h", "j"]]
    assert cells.texttemplate == "%{text}"
    assert cells.hovertext[0][1] == (
        "input<br>after token 11: <b>&lt;s&gt;</b><br><b>0.7500</b> &#36;x&#36;<br><b>0.1250</b> c"
    )
    assert cells.hovertext[0][0].endswith("<br><b>0.2500</b> &lt;b&gt;")
    assert "d" * 30 in cells.hovertext[1][0]
    assert cells.hovertext[2][0].startswith("&lt;1&gt;<br>after token 7")
    assert figure.layout.yaxis.range == (2.5, -0.5)


def test_a_lens_of_many_tokens_has_no_words_in_its_cells():
    figure = plot_lens(np.full((3, 41, 2), "a"), np.zeros((3, 41, 2)), ["the"] * 41, ["0", "1", "2"])
    assert figure.data[0].texttemplate is None
    assert figure.data[0].hovertext[0][40].startswith("0<br>after token 40: ")
