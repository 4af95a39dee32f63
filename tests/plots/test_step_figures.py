"""Steps, products and the spread of scores by their data."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnviz.analysis.arithmetic import dimension_products
from attnviz.analysis.scaling import score_spread
from attnviz.analysis.steps import Step, steps
from attnviz.errors import OptionError, ShapeError
from attnviz.experiment import Experiment, run_experiment
from attnviz.plots.steps import MOST_MARKED, plot_products, plot_spread, plot_step
from attnviz.plots.theme import DARK, HEADS_BESIDE, LIGHT

TOY = Experiment(text="the dog saw the cat", heads=3, dimension=15, seed=7, causal=True, device="cpu")


AWKWARD = {"dog": "<s>", "cat": "$x$"}


def toy_steps(**choices):
    outcome = run_experiment(replace(TOY, **choices))
    found = steps(outcome.trace, 0, 1, matrices=outcome.matrices)
    return {step.key: relabelled(step) for step in found}


def relabelled(step):
    """The step with tokens that are markup to Plotly."""
    rows, columns = (
        tuple(AWKWARD.get(label, label) for label in labels) for labels in (step.row_labels, step.column_labels)
    )
    return replace(step, row_labels=rows, column_labels=columns)


@pytest.fixture(scope="module")
def found():
    return toy_steps()


def step(matrix, kind="vectors", **options):
    matrix = torch.as_tensor(matrix, dtype=torch.float32)
    names = [tuple(map(str, range(size))) for size in matrix.shape]
    return Step("any", "", "", (), "", matrix, *names, kind, **options)


KEYS = (
    "inputs",
    "queries",
    "keys",
    "values",
    "products",
    "scaled",
    "masked",
    "weights",
    "head_output",
    "concatenated",
    "output",
)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("key", KEYS)
def test_a_step_is_its_numbers(found, key, theme):
    colours = {"light": LIGHT, "dark": DARK}[theme]
    figure = plot_step(found[key], theme=theme)
    (cells,) = figure.data
    matrix = found[key].matrix.numpy()
    shown = ~np.tril(np.ones((5, 5), bool)) if key in ("masked", "weights") else np.zeros_like(matrix, bool)
    assert cells.z.dtype == np.float32
    assert np.array_equal(np.isnan(cells.z), shown)
    assert np.array_equal(cells.z[~shown], matrix[~shown])
    assert len(figure.layout.images) == shown.any()
    assert figure.layout.yaxis.range == (4.5, -0.5)
    assert figure.layout.yaxis.ticktext == ("the", "&lt;s&gt;", "saw", "the", "&#36;x&#36;")
    if key == "weights":
        scale = figure.layout.coloraxis
        assert (scale.cmin, scale.cmax) == (0, 1)
    else:
        assert cells.zmax == -cells.zmin == np.abs(cells.z[~shown]).max()
        assert dict(cells.colorscale)[0.5] == colours.page
    tokens = key in ("products", "scaled", "masked", "weights")
    assert figure.layout.xaxis.title.text == ("key: attended to" if tokens else "dimension")
    assert figure.layout.yaxis.title.text == ("query: attends from" if tokens else "token")
    assert (figure.layout.xaxis.ticktext[1] == "&lt;s&gt;") == tokens
    assert not figure.layout.shapes


def test_hover_says_row_column_and_number(found):
    text = plot_step(found["masked"]).data[0].hovertext
    value = found["masked"].matrix[4, 1]
    assert text[4][1] == f"query 4: <b>&#36;x&#36;</b><br>key 1: <b>&lt;s&gt;</b><br><b>{value:.6f}</b>"
    assert text[1][4].endswith("not allowed by the mask")
    text = plot_step(found["queries"]).data[0].hovertext
    assert text[1][2] == f"token 1: <b>&lt;s&gt;</b><br>dimension 2<br><b>{found['queries'].matrix[1, 2]:.6f}</b>"
    assert "<br>head 1 · 3<br>" in plot_step(found["concatenated"]).data[0].hovertext[0][8]


@pytest.mark.parametrize(("columns", "template"), [(8, ".4f"), (12, ".3f"), (18, ".2f"), (19, None)])
@pytest.mark.parametrize("kind", ["vectors", "scores", "weights"])
def test_numbers_stand_in_the_cells_where_they_fit(columns, template, kind):
    cells = plot_step(step(torch.rand(3, columns), kind)).data[0]
    assert cells.texttemplate == (None if template is None else f"%{{z:{template}}}")


def test_wide_vectors_and_long_maps_are_still_drawn():
    cells = plot_step(step(torch.rand(40, 384))).data[0]
    assert cells.hovertext is None
    assert "dimension %{x}" in cells.hovertemplate
    cells = plot_step(step(torch.rand(128, 128), "scores")).data[0]
    assert "key %{x:d}: <b>%{x}</b>" in cells.hovertemplate


def test_a_row_and_a_cell_are_framed_in_the_accent(found):
    figure = plot_step(found["scaled"], selected_row=3, selected_cell=(3, 1), theme="dark")
    frames = [(frame.x0, frame.x1, frame.y0, frame.y1) for frame in figure.layout.shapes]
    assert frames == [(-0.5, 4.5, 2.5, 3.5), (0.5, 1.5, 2.5, 3.5)]
    assert {frame.line.color for frame in figure.layout.shapes} == {DARK.accent}


def marked(figure):
    """The (row, column) of each marked cell."""
    if len(figure.data) == 1:
        return set()
    _, marks = figure.data
    assert marks.name == "changed"
    assert marks.marker.color == LIGHT.text  # the accent means selected, nothing else
    return set(zip(np.round(marks.y).astype(int).tolist(), np.round(marks.x).astype(int).tolist(), strict=True))


def test_cells_that_differ_from_before_are_marked(found):
    after = toy_steps(edits="k:2.7=3;mask:1.0=0")  # column 2 of head 1
    for key in KEYS:
        before = found[key].matrix
        differ = {tuple(at) for at in (before != after[key].matrix).nonzero().tolist()}
        assert marked(plot_step(after[key], before=before)) == differ
        assert not marked(plot_step(after[key], before=after[key].matrix))  # −∞ is −∞
    assert marked(plot_step(after["keys"], before=found["keys"].matrix)) == {(row, 2) for row in range(5)}
    assert (1, 0) in marked(plot_step(after["masked"], before=found["masked"].matrix))
    assert not marked(plot_step(after["queries"], before=found["queries"].matrix))


def test_more_changes_than_can_be_marked_are_not():
    size = int(MOST_MARKED**0.5) + 1
    assert len(plot_step(step(torch.ones(size, size)), before=torch.zeros(size, size)).data) == 1


def test_two_maps_can_share_a_limit_and_zeros_have_the_colour_of_zero():
    assert plot_step(step([[1.0, -3.0]]), limit=7).data[0].zmax == 7
    assert plot_step(step([[0.0, 0.0]])).data[0].zmax > 0
    masked = step([[-torch.inf, -torch.inf]], "scores", allowed=torch.tensor([[False, False]]))
    figure = plot_step(masked)
    assert np.isnan(figure.data[0].z).all()
    assert len(figure.layout.images) == 1


def test_what_does_not_fit_is_said(found):
    with pytest.raises(ShapeError, match=r"shape \[5, 5\], got \[5, 15\]"):
        plot_step(found["queries"], before=found["inputs"].matrix)


def test_the_spread_has_two_curves_a_panel_and_what_theory_says():
    table = score_spread([2, 8, 32, 128], samples=20, keys=5)
    figure = plot_spread(table.sample(frac=1, random_state=3), theme="dark")
    curves = [curve for curve in figure.data if curve.mode == "lines+markers"]
    assert len(curves) == 6
    for measure, axis in (("variance", "x"), ("entropy", "x2"), ("gradient", "x3")):
        for name, scaled in (("q·k", False), ("q·k ÷ √d_k", True)):
            (curve,) = [one for one in curves if one.xaxis == axis and one.name == name]
            part = table[table["scaled"] == scaled]
            assert list(curve.x) == [2, 8, 32, 128]
            assert list(curve.y) == part[measure].tolist()
            assert list(curve.error_y.array) == part[f"{measure}_error"].tolist()
    assert len({curve.line.color for curve in curves}) == 2
    assert {curve.line.color for curve in curves} <= set(HEADS_BESIDE["dark"])
    assert sum(curve.showlegend for curve in curves) == 2
    theory = {line.name: list(line.y) for line in figure.data if line.mode == "lines"}
    assert theory == {"d, by theory": [2, 8, 32, 128], "1, by theory": [1, 1, 1, 1]}
    assert [axis.type for axis in figure.select_xaxes()] == ["log"] * 3
    assert figure.layout.yaxis.type == "log"
    with pytest.raises(OptionError, match="got none"):
        plot_spread(table.iloc[:0])


def test_titles_of_the_spread_stand_beside_each_other_on_a_narrow_page():
    figure = plot_spread(score_spread([2, 8], samples=2, keys=2))
    titles = [one.text for one in figure.layout.annotations]
    assert len(titles) == 3
    assert max(len(line) for title in titles for line in title.split("<br>")) <= 15  # a panel of 100 pixels holds these


def test_all_ten_dimensions_are_ticks_and_the_last_is_named():
    axis = plot_spread(score_spread(samples=2, keys=2)).layout.xaxis
    assert axis.tickvals == tuple(2**power for power in range(1, 11))
    assert axis.ticktext == ("2", "", "", "16", "", "", "128", "", "", "1,024")


@pytest.mark.parametrize(("width", "most", "others"), [(5, 24, 0), (24, 24, 0), (25, 24, 1), (384, 7, 377)])
def test_the_bars_of_a_product_add_up(width, most, others):
    query, key = torch.randn(2, width, generator=torch.Generator().manual_seed(3))
    table = dimension_products(query, key)
    figure = plot_products(table, most=most, title="<s>")
    (bars,) = figure.data
    assert sum(bars.y) == pytest.approx(float(query @ key), abs=1e-5)
    assert len(bars.y) == min(width, most) + bool(others)
    names = figure.layout.xaxis.ticktext
    assert names[0] == str(int((query * key).abs().argmax()))
    assert (names[-1] == f"{others} others") == bool(others)
    shown = [(value >= 0) == (ink == LIGHT.diverging[-1]) for value, ink in zip(bars.y, bars.marker.color, strict=True)]
    assert all(shown)
    first = table.iloc[0]
    assert f"<b>{first['product']:.4f}</b>".replace("-", "−") in bars.hovertext[0]
    assert figure.layout.title.text == "&lt;s&gt;"
