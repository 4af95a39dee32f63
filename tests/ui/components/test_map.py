"""What the browser gets of one long head: an overview at once, and the tiles that it asks for."""

import json
import time

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from attnviz.analysis.pooled import pooled
from attnviz.attention import MultiHeadSelfAttention
from attnviz.ui.components.map import MOST_PIXELS, encoded

QUERIES = 1033  # more than an overview has pixels, and prime


def script():
    import streamlit as st

    from attnviz.ui.components.map import Axis, render_map

    given = st.session_state["given"]
    axis = Axis(given["labels"], [at == 7 for at in range(len(given["labels"]))])
    render_map(
        given["overview"],
        given["read_tile"],
        name="trace/0/1",
        title="Layer 0, head 1",
        queries=axis,
        keys=axis,
        sink=given["sink"],
        ink=given["ink"],
    )


@pytest.fixture(scope="module")
def trace():
    torch.manual_seed(5)
    causal = torch.ones(QUERIES, QUERIES, dtype=torch.bool).tril()
    labels = [f"<b>{at}" for at in range(QUERIES)]
    return MultiHeadSelfAttention(10, 2).trace(torch.randn(QUERIES, 10), tokens=labels, mask=causal)


@pytest.fixture
def page(trace):
    """The map of head 1 with a way to ask for tiles as the browser does."""
    layer = trace.layer(0)

    def read_tile(rows, columns):
        return trace.weights(0, 1, None, rows, columns).masked_fill(~layer.allowed(rows, columns, 1), torch.nan)

    app = AppTest.from_function(script, default_timeout=60)
    app.session_state["given"] = {
        "overview": pooled(layer, 1, MOST_PIXELS),
        "read_tile": read_tile,
        "labels": trace.query_tokens().labels,
        "sink": torch.linspace(0, 1, QUERIES),
        "ink": "sqrt",
    }
    return app


def sent(app, key):
    """The header and the arrays that the component gets, as shared.js reads them."""
    app.run()
    assert not app.exception
    data = next(one for one in app.get("bidi_component") if one.key == key).proto.bytes
    end = 4 + int.from_bytes(data[:4], "little")
    header = json.loads(data[4:end])
    arrays = [
        np.frombuffer(data, place["type"], int(np.prod(place["shape"])), end + place["offset"]).reshape(place["shape"])
        for place in header["arrays"]
    ]
    return header, arrays


def test_the_overview_says_what_is_under_each_pixel(page, trace):
    header, (codes, peaks, sink) = sent(page, "map")
    assert header["query"]["labels"][:2] == ["<b>0", "<b>1"]
    assert header["key"]["special"] == [7]
    assert (header["kind"], header["ink"], header["restricted"], header["hasSink"]) == ("overview", "sqrt", True, True)
    assert codes.shape == (517, 517)
    weights = trace.weights(0, 1)
    assert peaks == pytest.approx(weights.amax(1).numpy(), abs=1e-6)
    assert sink[-1] == 1
    read = ((codes.astype(float) - 1) / 254) ** 2
    for row, column in ((0, 0), (3, 2), (300, 17), (516, 516)):
        under = float(weights[row * 2 : row * 2 + 2, column * 2 : column * 2 + 2].max())
        assert under - 1e-5 <= read[row, column] <= (under**0.5 + 1 / 254) ** 2 + 1e-5
    assert (codes[np.triu_indices(517, 1)] == 0).all()
    assert (codes[np.tril_indices(517)] > 0).all()


def test_shares_of_the_row_are_sent_where_ink_goes_by_row(page):
    page.session_state["given"]["ink"] = "row"
    header, (codes, _, _) = sent(page, "map")
    assert header["ink"] == "row"
    assert (codes.max(1) == 255).all()  # each row's largest weight has all the ink


def test_no_tile_is_sent_unasked(page):
    header, arrays = sent(page, "hidden-map-tiles")
    assert (header["kind"], header["tiles"], arrays) == ("tiles", [], [])


def test_tiles_are_the_weights_and_nan_where_masked(page, trace):
    question = {"map": "trace/0/1", "tiles": [[2, 1], [8, 8]]}
    page.session_state["hidden-map-tiles-asked"] = (question, time.monotonic())
    header, (inner, corner) = sent(page, "hidden-map-tiles")
    assert header["tiles"] == [[2, 1, 128, 128], [8, 8, 9, 9]]
    weights = trace.weights(0, 1)
    assert np.array_equal(inner, weights[256:384, 128:256].numpy())
    expected = weights[1024:, 1024:].masked_fill(~torch.ones(9, 9, dtype=torch.bool).tril(), torch.nan)
    assert np.array_equal(corner, expected.numpy(), equal_nan=True)


def test_an_old_question_is_not_answered_again(page):
    question = {"map": "trace/0/1", "tiles": [[2, 1]]}
    page.session_state["hidden-map-tiles-asked"] = (question, time.monotonic() - 60)
    assert sent(page, "hidden-map-tiles")[0]["tiles"] == []


@pytest.mark.parametrize(
    "wanted",
    [
        {"map": "another", "tiles": [[0, 0]]},
        {"map": "trace/0/1", "tiles": [[9, 0], [-1, 0], [0, 10**9]]},
        {"map": "trace/0/1"},
    ],
)
def test_what_is_not_there_is_not_sent(page, wanted):
    page.session_state["hidden-map-tiles-asked"] = (wanted, time.monotonic())
    assert sent(page, "hidden-map-tiles")[0]["tiles"] == []


def test_codes_are_never_below_the_weight_and_small_weights_have_some():
    weights = torch.tensor([0, 1e-6, 0.001, 0.002, 0.25, 0.7, 1, torch.nan])
    codes = encoded(weights)
    assert codes[[0, 4, 6, 7]].tolist() == [1, 128, 255, 0]
    assert ((codes[:-1] - 1.0) / 254) ** 2 == pytest.approx(weights[:-1].numpy(), abs=0.008)
    assert (((codes[:-1] - 1.0) / 254) ** 2 >= weights[:-1].numpy() - 1e-6).all()
    assert len(set(codes[:4].tolist())) == 4
