"""Weights of a layer, whole and in parts, against a plain float64 computation, for every kind of rule."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from layer_cases import KINDS, case

from attnviz import layers
from attnviz.errors import MaskError, OptionError, ShapeError, SupportError
from attnviz.layers import ComputedLayer, StoredLayer
from attnviz.rules import ScoreRule

CLOSE = {"atol": 1e-6, "rtol": 1e-5}


@pytest.fixture(params=[None, 1], ids=["one block", "several blocks"])
def blocks(request, monkeypatch):
    if request.param is not None:
        monkeypatch.setattr(layers, "BLOCK_BYTES", request.param)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("kind", KINDS)
def test_every_number_of_a_layer_is_right(kind):
    layer, scores, allowed, weights, sink = case(kind)
    heads, queries, keys = layer.shape
    for head in range(heads):
        torch.testing.assert_close(layer.weights(head), weights[head].float(), **CLOSE)
        torch.testing.assert_close(layer.scores(head), scores[head].float(), atol=2e-6, rtol=1e-6)
        assert torch.equal(layer.allowed(head=head), allowed[head])
        output = weights[head] @ layer.value[layer.key_head(head)].double()
        torch.testing.assert_close(layer.head_output(head), output.float(), atol=2e-6, rtol=1e-5)
        if layer.rule.sink is None:
            assert layer.sink_weights(head) is None
        else:
            torch.testing.assert_close(layer.sink_weights(head), sink[head].float(), **CLOSE)
            assert (sink[head] > 0).all()
    assert torch.equal(layer.allowed(), allowed.any(0))
    torch.testing.assert_close(layer.weights(slice(None)), weights.float(), **CLOSE)
    assert not layer.weights(slice(None))[~allowed].any()

    torch.testing.assert_close(layer.sum_exponentials(), layer.logsumexp, **CLOSE)
    whole = torch.zeros(heads, queries, keys)
    for block in layer.blocks():
        whole[:, block.rows, block.columns] = block.weights
        live = allowed[:, block.rows].any(-1)
        assert block.log_weights[live].isfinite().all()
    torch.testing.assert_close(whole, weights.float(), **CLOSE)


@pytest.mark.parametrize("kind", ["plain", "causal window, offset", "empty rows", "mask per head", "bias per head"])
def test_head_outputs_equal_sdpas(kind):
    layer, _, allowed, *_ = case(kind)
    repeat = layer.shape[0] // layer.key.shape[0]
    key, value = (part.repeat_interleave(repeat, 0) for part in (layer.key, layer.value))
    bias = torch.zeros(layer.shape) if layer.rule.bias is None else layer.rule.bias
    mask = bias.masked_fill(~allowed, -torch.inf)
    expected = F.scaled_dot_product_attention(layer.query, key, value, attn_mask=mask, scale=layer.rule.scaling)
    found = torch.stack([layer.head_output(head) for head in range(layer.shape[0])])
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)


PARTS = [
    (slice(3, 9), slice(2, 30)),
    (slice(36, 37), slice(None)),
    (slice(None), slice(-1, None)),
    (slice(0, 37, 5), slice(30, 2, -7)),
    (slice(None, None, -1), [0, 36, 5, 5]),
    ([4], [4]),
    ([-1, 0], slice(9, 9)),
    ([], [1]),
    (slice(20, 10), slice(None)),
    (torch.tensor([7, 11, 13]), torch.arange(37) % 2 == 0),
]


@pytest.mark.parametrize(
    "kind", ["plain", "mask per head", "bias per head", "sink", "window", "causal mask and window"]
)
@pytest.mark.parametrize(("rows", "columns"), PARTS, ids=str)
def test_a_part_equals_the_part_of_the_whole(kind, rows, columns):
    layer = case(kind).layer
    stored = StoredLayer(layer=0, role="encoder", rule=layer.rule, stored=layer.weights(slice(None)))
    at = [torch.arange(37).numpy()[part if isinstance(part, slice) else list(part)] for part in (rows, columns)]
    if isinstance(columns, torch.Tensor):
        at[1] = columns.nonzero().flatten().numpy()
    for head in (0, layer.shape[0] - 1):
        for reading in (layer.weights, layer.scores, stored.weights):
            expected = reading(head)[at[0].tolist()][:, at[1].tolist()]
            torch.testing.assert_close(reading(head, rows, columns), expected, **CLOSE)
        expected = layer.allowed(head=head)[at[0].tolist()][:, at[1].tolist()]
        assert torch.equal(layer.allowed(rows, columns, head), expected)


def test_heads_that_share_keys_and_the_bare_products():
    layer = case("grouped").layer
    assert [layer.key_head(head) for head in range(6)] == [0, 0, 0, 1, 1, 1]
    for head in range(6):
        torch.testing.assert_close(
            layer.scores(head, scaled=False), layer.query[head] @ layer.key[head // 3].T, **CLOSE
        )
    capped = case("soft-cap and bias").layer
    torch.testing.assert_close(capped.scores(3, scaled=False), capped.query[3] @ capped.key[1].T, **CLOSE)
    assert torch.equal(layer.weights(-1), layer.weights(5))


def test_reading_changes_nothing():
    layer = case("soft-cap and bias").layer
    before = [tensor.clone() for tensor in layer.tensors]
    for read in (layer.weights, layer.scores, layer.head_output):
        read(1).zero_()
    list(layer.blocks())
    assert all(torch.equal(one, other) for one, other in zip(before, layer.tensors, strict=True))
    stored = StoredLayer(layer=0, role="encoder", rule=ScoreRule(scaling=1.0), stored=layer.weights(slice(None)))
    stored.weights(0).zero_()
    assert stored.weights(0).sum() > 30


def test_half_precision_is_read_as_float32():
    exact = case("causal").layer
    half = {name: getattr(exact, name).bfloat16() for name in ("query", "key", "value")}
    rounded = dataclasses.replace(exact, **half)
    full = dataclasses.replace(exact, **{name: tensor.float() for name, tensor in half.items()})
    assert rounded.weights(1).dtype == rounded.scores(1).dtype == rounded.head_output(1).dtype == torch.float32
    assert torch.equal(rounded.weights(1), full.weights(1))


def stored_layer(kind="causal", **changes):
    layer, *_, weights, _ = case(kind)
    value = layer.value if changes.pop("with_value", True) else None
    options = {"layer": 2, "role": layer.role, "rule": layer.rule, "stored": weights.float(), "value": value}
    return StoredLayer(**options | changes)


def test_a_stored_layer_reads_like_a_computed_one():
    computed, stored = case("causal").layer, stored_layer()
    assert stored.shape == computed.shape
    for head in range(4):
        torch.testing.assert_close(stored.weights(head), computed.weights(head), **CLOSE)
        torch.testing.assert_close(stored.head_output(head), computed.head_output(head), atol=2e-6, rtol=1e-5)
        assert torch.equal(stored.allowed(head=head), computed.allowed(head=head))
    assert stored.sink_weights(0) is None
    with pytest.raises(SupportError, match="scores are not known"):
        stored.scores(0)
    with pytest.raises(SupportError, match="values are not known"):
        stored_layer(with_value=False).head_output(0)


def computed_layer(**changes):
    options = {
        **{"layer": 5, "role": "encoder", "rule": ScoreRule(scaling=1.0)},
        **{"query": torch.ones(4, 7, 13), "key": torch.ones(2, 11, 13), "value": torch.ones(2, 11, 3)},
        "logsumexp": torch.ones(4, 7),
    }
    return ComputedLayer(**options | changes)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"query": torch.ones(7, 13)}, ShapeError, ["[head, token, width]", "[7, 13]"]),
        ({"query": torch.ones(4, 0, 13)}, ShapeError, ["at least one", "[4, 0, 13]"]),
        ({"key": torch.ones(2, 11, 5)}, ShapeError, ["13", "5"]),
        ({"key": torch.ones(3, 11, 13)}, ShapeError, ["4 query heads", "3"]),
        ({"value": torch.ones(2, 7, 3)}, ShapeError, ["[2, 11, d_value]", "[2, 7, 3]"]),
        ({"logsumexp": torch.ones(2, 7)}, ShapeError, ["[4, 7]", "[2, 7]"]),
        ({"logsumexp": torch.full((4, 7), torch.nan)}, SupportError, ["NaN", "layer 5", "float32"]),
        ({"logsumexp": torch.full((4, 7), torch.inf)}, SupportError, ["infinity", "layer 5"]),
        ({"query": torch.ones(4, 7, 13, requires_grad=True)}, SupportError, ["layer 5", "no_grad"]),
        ({"rule": ScoreRule(scaling=1.0, mask=torch.ones(11, 7).bool())}, MaskError, ["[7, 11]", "[11, 7]"]),
    ],
)
def test_a_layer_checks_itself(changes, error, words):
    assert computed_layer().shape == (4, 7, 11)
    with pytest.raises(error) as raised:
        computed_layer(**changes)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_a_stored_layer_checks_itself():
    with pytest.raises(SupportError, match="NaN"):
        stored_layer(stored=torch.full((4, 37, 37), torch.nan))
    with pytest.raises(ShapeError, match=r"\[37, 37\]"):
        stored_layer(stored=torch.ones(37, 37))


@pytest.mark.parametrize("head", [4, -5])
@pytest.mark.parametrize("reading", ["weights", "scores", "head_output", "sink_weights"])
def test_a_head_that_is_not_there(head, reading):
    with pytest.raises(OptionError, match=f"Layer 2 .decoder. has heads 0 to 3, got head {head}"):
        getattr(case("sink").layer, reading)(head)
