"""The overview of a long head, against the largest of the trace's own weights under each pixel, cell by cell."""

import pytest
import torch
from layer_cases import KINDS, case

from attnviz.analysis.pooled import Pooled, pooled
from attnviz.errors import OptionError
from attnviz.layers import StoredLayer

NAN = float("nan")


def naive(weights, allowed, peaks, most) -> Pooled:
    """Loops over pixels, and under each over cells."""
    queries, keys = weights.shape
    tall, wide = -(-queries // most), -(-keys // most)
    cells, peaks_of, may = weights.tolist(), peaks.tolist(), allowed.tolist()
    largest = torch.full((-(-queries // tall), -(-keys // wide)), NAN)
    shares = largest.clone()
    for row in range(largest.shape[0]):
        for column in range(largest.shape[1]):
            under = [
                (cells[i][j], cells[i][j] / peaks_of[i])
                for i in range(row * tall, min((row + 1) * tall, queries))
                for j in range(column * wide, min((column + 1) * wide, keys))
                if may[i][j]
            ]
            if under:
                largest[row, column], shares[row, column] = (max(values) for values in zip(*under, strict=True))
    return Pooled(largest, shares, peaks, not bool(allowed.all()))


def check(found, expected):
    assert torch.equal(found.weights.isnan(), expected.weights.isnan())
    torch.testing.assert_close(found.weights, expected.weights, equal_nan=True, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.shares, expected.shares, equal_nan=True, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.row_peaks, expected.row_peaks, rtol=1e-5, atol=1e-6)
    assert found.restricted == expected.restricted


@pytest.mark.parametrize("most", [64, 13, 5, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pixel_is_the_largest_weight_under_it(kind, most):
    layer, _, allowed, _, sink = case(kind)
    head = layer.shape[0] - 1
    weights = layer.weights(head)
    peaks = torch.maximum(weights.amax(1), sink[head].float())
    check(pooled(layer, head, most), naive(weights, allowed[head], peaks, most))


@pytest.mark.parametrize("kind", ["plain", "window", "mask per head", "empty rows", "cross with empty rows"])
def test_stored_weights_are_pooled_too_and_left_as_they_are(kind):
    computed, _, allowed, weights, _ = case(kind)
    stored = weights.float()
    layer = StoredLayer(layer=0, role=computed.role, rule=computed.rule, stored=stored)
    found = pooled(layer, 1, 7)
    assert torch.equal(stored, weights.float())
    check(found, naive(stored[1], allowed[1], stored[1].amax(1), 7))


def test_blocks_of_rows_meet_without_a_seam():
    torch.manual_seed(3)
    queries, keys = 401, 263  # more rows than a block, and both primes
    weights = torch.rand(2, queries, keys).softmax(-1)
    layer = StoredLayer(layer=0, role="cross", rule=case("plain").layer.rule, stored=weights)
    allowed = torch.ones(queries, keys, dtype=torch.bool)
    check(pooled(layer, 1, 97), naive(weights[1], allowed, weights[1].amax(1), 97))


def test_one_strong_weight_among_many_is_kept():
    weights = torch.full((1, 1000, 1000), 1e-4)
    weights[0, 617, 331] = 0.75
    layer = StoredLayer(layer=0, role="encoder", rule=case("plain").layer.rule, stored=weights)
    found = pooled(layer, 0, 10)
    assert found.weights.shape == (10, 10)
    assert found.weights[6, 3] == 0.75
    assert (found.weights == 0.75).sum() == 1


def test_a_head_that_is_not_there_and_no_pixel_at_all():
    layer = case("plain").layer
    with pytest.raises(OptionError, match="heads 0 to 2, got head 3"):
        pooled(layer, 3, 8)
    with pytest.raises(OptionError, match="at least 1 pixel a side, got 0"):
        pooled(layer, 0, 0)
