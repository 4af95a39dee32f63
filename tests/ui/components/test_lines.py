"""The lines' Python face: what is sent, and what comes back from a browser or an address."""

import json
import math

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from attnviz.analysis.strongest import strongest
from attnviz.plots.theme import HEADS_BESIDE
from attnviz.ui.components.lines import LineOptions

TYPES = {"float32": np.float32, "uint16": np.uint16}


def unpack(packed: bytes) -> tuple[dict, list[np.ndarray]]:
    length = int.from_bytes(packed[:4], "little")
    header, block = json.loads(packed[4 : 4 + length]), packed[4 + length :]
    arrays = [
        np.frombuffer(block, TYPES[one["type"]], math.prod(one["shape"]), one["offset"]).reshape(one["shape"])
        for one in header["arrays"]
    ]
    return header, arrays


def page(seed: int | None, threshold: float) -> None:
    import torch

    from attnviz.analysis.strongest import strongest
    from attnviz.ui.components.lines import LineOptions, render_lines

    rng = torch.Generator().manual_seed(seed or 0)
    heads = {(3, 1): torch.rand(7, 11, generator=rng), (5, 0): torch.rand(7, 11, generator=rng)}
    found = None if seed is None else {place: strongest(weights, 2) for place, weights in heads.items()}
    render_lines(strongest=found, options=LineOptions(threshold=threshold, top=2), ink="sqrt")


def sent(**given) -> tuple[dict, list[np.ndarray]]:
    app = AppTest.from_function(page, kwargs=given).run()
    assert [one.message for one in app.exception] == []
    return unpack(app.get("bidi_component")[0].proto.bytes)


def test_the_strongest_keys_of_each_head_are_sent():
    header, arrays = sent(seed=1, threshold=0.25)
    assert header["strongest"] == [[3, 1], [5, 0]]
    assert [array.dtype for array in arrays] == [np.uint16, np.uint16, np.float32] * 2
    expected = strongest(torch.rand(7, 11, generator=torch.Generator().manual_seed(1)), 2)
    for got, wanted in zip(arrays, expected, strict=False):
        np.testing.assert_array_equal(got, wanted.numpy())


def test_the_look_and_the_options_are_sent():
    header, arrays = sent(seed=None, threshold=0.25)
    assert header["options"] == {"threshold": 0.25, "top": 2, "pair": "all", "horizontal": False}
    assert (header["ink"], header["strongest"], arrays) == ("sqrt", [], [])
    assert header["heads"]["dark"] == list(HEADS_BESIDE["dark"])


def test_what_is_sent_has_a_version_of_its_own():
    first, again = sent(seed=1, threshold=0.25)[0], sent(seed=1, threshold=0.25)[0]
    others = sent(seed=2, threshold=0.25)[0], sent(seed=1, threshold=0.5)[0]
    assert first["version"] == again["version"]
    assert first["version"] not in {other["version"] for other in others}


def test_what_a_browser_tells_becomes_options():
    told = {"threshold": 0.1, "top": 3, "pair": "AB", "horizontal": True}
    assert LineOptions.read(told) == LineOptions(0.1, 3, "AB", True)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, LineOptions()),
        ({"threshold": -1, "top": 0, "pair": "CC", "horizontal": 1}, LineOptions(threshold=0)),
        ({"threshold": 7, "top": 2.5}, LineOptions(threshold=1)),
        ({"threshold": math.nan, "top": "3", "pair": None}, LineOptions()),
        ({"threshold": "0.3", "top": True, "pair": ["AB"]}, LineOptions()),
        ({"threshold": True}, LineOptions()),
        ({"threshold": 1}, LineOptions(threshold=1)),
    ],
)
def test_what_makes_no_sense_is_left_at_its_default(told, expected):
    assert LineOptions.read(told) == expected
