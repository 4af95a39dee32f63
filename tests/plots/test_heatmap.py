"""The pieces of a map: axes by position, hover by token, hatching by its own drawing."""

import html
import re
from urllib.parse import unquote

import numpy as np
import pytest
import torch

from attnviz.plots.heatmap import HOVER_CELLS, as_array, hatching, token_axis, weight_cells
from attnviz.plots.theme import DARK, LIGHT
from attnviz.tokens import readable

AWKWARD = [
    "<b>x</b>",
    "$x$",
    "#000032",
    "%{y}",
    "a<b<c",
    '"',
    "</script>",
    "a\nb",
    "",
    "שלום",
    "e" * 300,
    "*_",
    ":smile:",
]
AWKWARD = [readable(text) for text in AWKWARD]


def plain(text):
    """What Plotly shows of a text, without marks of direction."""
    return re.sub("[\u2066-\u2069]", "", html.unescape(re.sub("</?b>", "", text)))


@pytest.mark.parametrize("every", [True, False])
def test_equal_tokens_keep_places_of_their_own(every):
    axis = token_axis(["the", "cat", "the"], every=every)
    if every:
        assert axis["tickvals"] == [0, 1, 2]
        assert axis["ticktext"] == ["the", "cat", "the"]
    else:
        assert axis["labelalias"] == {"0": "the", "1": "cat", "2": "the"}
        assert axis["tickformat"] == "~f"  # no label at a half position, as rounding would put there
    assert axis["range"] == [-0.5, 2.5]
    assert "type" not in axis


@pytest.mark.parametrize("every", [True, False])
def test_awkward_labels_are_shown_and_not_obeyed(every):
    axis = token_axis(AWKWARD, every=every)
    texts = axis["ticktext"] if every else list(axis["labelalias"].values())
    assert not any(re.search(r"[<>$\n]|#0000\d\d|%\{", text) for text in texts)
    for label, text in zip(AWKWARD, texts, strict=True):
        shown = plain(text)
        assert shown == label or (len(label) > 24 and shown == label[:23] + "…")


def test_hover_names_both_tokens_whole_with_their_positions():
    weights = np.random.default_rng(0).random((len(AWKWARD), 3), dtype=np.float32)
    texts = weight_cells(weights, None, AWKWARD, ["the", "cat", "the"]).hovertext
    assert np.shape(texts) == weights.shape
    for row, label in enumerate(AWKWARD):
        query, key, value = texts[row][2].split("<br>")
        assert plain(query) == f"query {row}: {label}"
        assert key == "key 2: <b>the</b>"
        assert value == f"weight <b>{weights[row, 2]:.6f}</b>"
        assert not re.search(r"[<>$]|#0000\d\d|%\{", re.sub("</?b>", "", query, count=2))


def test_masked_cells_have_no_value_and_say_so():
    allowed = np.random.default_rng(1).random((5, 7)) < 0.5
    cells = weight_cells(np.full((5, 7), 0.25), allowed, list("abcde"), list("abcdefg"))
    assert cells.z.dtype == np.float32
    assert np.array_equal(np.isnan(cells.z), ~allowed)
    assert (cells.z[allowed] == np.float32(0.25)).all()
    values = np.array([[text.split("<br>")[2] for text in row] for row in cells.hovertext])
    assert (values[allowed] == "weight <b>0.250000</b>").all()
    assert (values[~allowed] == "not allowed by the mask").all()
    assert cells.hoverongaps


@pytest.mark.parametrize(("rows", "per_cell"), [(100, True), (101, False)])
def test_above_so_many_cells_hover_is_read_from_the_axes(rows, per_cell):
    assert HOVER_CELLS == 100 * 100
    labels = [f"t{at}" for at in range(rows)]
    cells = weight_cells(np.zeros((rows, 100)), None, labels, labels[:100], decimals=None)
    assert (cells.hovertext is not None) == per_cell
    assert cells.text is None
    if not per_cell:
        for part in ("%{y}", "%{y:d}", "%{x}", "%{x:d}", "%{z:.6f}"):
            assert part in cells.hovertemplate
        assert not cells.hoverongaps


@pytest.mark.parametrize(
    "values",
    [
        [[0.5, 1]],
        np.array([[0.5, 1]]),
        torch.tensor([[0.5, 1]], dtype=torch.bfloat16),
        torch.tensor([[0.5, 1]], requires_grad=True),
    ],
)
def test_numbers_of_any_kind_become_float32(values):
    array = as_array(values)
    assert type(array) is np.ndarray
    assert array.dtype == np.float32
    assert array.tolist() == [[0.5, 1]]


def drawn_cells(image, shape):
    """The cells that the drawing hatches, counted from its own rectangles."""
    svg = unquote(image["source"].removeprefix("data:image/svg+xml;utf8,"))
    assert re.search(rf"viewBox='0 0 {shape[1]} {shape[0]}' preserveAspectRatio='none'", svg)
    path = re.search(r"<path d='([^']*)' fill='url\(#h\)'/>", svg)[1]
    parts = re.findall(r"M(\d+) (\d+)h(\d+)v1h-(\d+)z", path)
    assert "".join(f"M{x} {y}h{right}v1h-{left}z" for x, y, right, left in parts) == path
    count = np.zeros(shape, dtype=int)
    for x, y, right, left in (map(int, part) for part in parts):
        assert right == left
        count[y, x : x + right] += 1
    return count


MASKS = {
    "causal": np.tril(np.ones((7, 7), bool)),
    "random": np.random.default_rng(2).random((11, 5)) < 0.5,
    "window": np.triu(np.tril(np.ones((9, 9), bool)), -2),
    "rows": np.repeat([[True], [False], [True]], 13, axis=1),
    "all": np.zeros((3, 2), bool),
    "one": np.zeros((1, 1), bool),
}


@pytest.mark.parametrize("allowed", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_the_hatch_covers_each_masked_cell_once_and_no_other(allowed, theme):
    image = hatching(allowed, theme)
    assert np.array_equal(drawn_cells(image, allowed.shape), ~allowed)
    assert "#" not in image["source"]  # it would end the address
    rows, columns = allowed.shape
    place = {"x": -0.5, "y": -0.5, "sizex": columns, "sizey": rows, "xanchor": "left", "yanchor": "top"}
    assert place.items() <= image.items()
    assert image["layer"] == "below"


def test_nothing_masked_is_nothing_hatched():
    assert hatching(np.ones((3, 5), bool), LIGHT) is None
