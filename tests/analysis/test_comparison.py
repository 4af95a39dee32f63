"""Measures of a difference against SciPy's and loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import case
from scipy.spatial.distance import jensenshannon

from attnviz.analysis.comparison import (
    ROWS,
    Comparison,
    compare,
    correlation,
    difference,
    difference_words,
    js_divergence,
    total_variation,
)
from attnviz.errors import ShapeError

NAN = math.nan
LN2 = math.log(2)


def maps(*shape, seed=0, sharp=2.0):
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (sharp * scores).softmax(-1)


def with_rest(weights):
    """Rows as NumPy arrays that sum to 1, the last cell what was lacking."""
    rows = np.nan_to_num(np.asarray(weights, dtype=np.float64))
    return np.concatenate([rows, np.clip(1 - rows.sum(-1, keepdims=True), 0, None)], axis=-1)


@pytest.mark.parametrize("shape", [(5, 7), (1, 1), (1, 11), (13, 2), (2, 3, 5, 7), (ROWS + 3, 5)])
def test_divergence_is_scipys_distance_squared(shape):
    left, right = maps(*shape), maps(*shape, seed=1)
    expected = jensenshannon(left.numpy(), right.numpy(), axis=-1) ** 2
    found = js_divergence(left, right)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    assert torch.equal(found, js_divergence(right, left))


@pytest.mark.parametrize("kind", ["causal", "sink", "cross", "window"])
def test_what_a_row_lacks_is_one_further_key(kind):
    _, _, allowed, weights, _ = case(kind)
    left, right = weights[0].masked_fill(~allowed[0], NAN), weights[1]
    expected = jensenshannon(with_rest(left), with_rest(right), axis=-1) ** 2
    np.testing.assert_allclose(js_divergence(left, right).numpy(), expected, atol=1e-9)
    moved = np.abs(with_rest(left) - with_rest(right)).sum(-1) / 2
    np.testing.assert_allclose(total_variation(left, right).numpy(), moved, atol=1e-12)


def test_equal_maps_do_not_differ_and_disjoint_ones_differ_wholly():
    left = maps(5, 7).float()
    assert not js_divergence(left, left).any()
    assert not total_variation(left, left).any()
    one, other = torch.eye(5)[:3], torch.eye(5)[2:]
    assert js_divergence(one, other).tolist() == pytest.approx([LN2] * 3, abs=1e-15)
    assert total_variation(one, other).tolist() == [1, 1, 1]
    assert js_divergence(torch.zeros(1, 3) + 1e-9, torch.tensor([[1.0, 0, 0]])).item() == pytest.approx(LN2, abs=1e-6)


def test_neither_small_differences_nor_small_weights_are_lost_to_rounding():
    assert js_divergence(torch.tensor([[1.0, 0.0]]), torch.tensor([[1e-30, 1.0]])).item() == pytest.approx(LN2)
    left = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    step = 1e-5
    found = js_divergence(left, left + torch.tensor([step, -step])).item()
    assert found == pytest.approx(step**2 / 2, rel=1e-4)  # the second-order term of the series around equal rows


@pytest.mark.parametrize("empty", [0.0, NAN])
def test_a_row_without_a_weight_in_one_map_has_nothing_to_compare(empty):
    left, right = maps(5, 7), maps(5, 7, seed=1)
    left[1], right[3] = empty, empty
    left[4] = right[4] = empty
    for found in (js_divergence(left, right), total_variation(left, right)):
        assert found.isnan().tolist() == [False, True, False, True, True]


@pytest.mark.parametrize("shapes", [((5, 7), (5, 6)), ((2, 5, 7), (5, 7)), ((7,), (7,))])
@pytest.mark.parametrize("measure", [js_divergence, total_variation, correlation])
def test_maps_of_different_shapes_are_refused_with_both(measure, shapes):
    with pytest.raises(ShapeError, match=r"of one shape, got \[.*\] and \[.*\]"):
        measure(torch.rand(*shapes[0]), torch.rand(*shapes[1]))


rows = st.lists(st.floats(0, 1, width=32), min_size=3, max_size=3)


@settings(deadline=None, max_examples=60)
@given(rows, rows, st.booleans())
def test_every_measure_keeps_its_range(left, right, sink):
    a, b = (torch.tensor([row]) for row in (left, right))
    scale = 2.0 if sink else 1.0
    a, b = (row / (row.sum() * scale).clamp_min(1e-6) for row in (a, b))
    nats, moved = js_divergence(a, b).item(), total_variation(a, b).item()
    if not a.any() or not b.any():
        assert math.isnan(nats)
        return
    assert 0 <= nats <= LN2
    assert 0 <= moved <= 1
    assert nats == js_divergence(b, a).item()
    assert moved**2 / 2 - 1e-7 <= nats <= LN2 * moved + 1e-7  # Lin 1991, theorem 3, and Pinsker's inequality


# Correlation and difference


def test_correlation_is_over_the_cells_allowed_in_both():
    left, right = maps(7, 7), maps(7, 7, seed=1)
    left[torch.ones(7, 7, dtype=torch.bool).triu(1)] = NAN
    right[:, 2] = NAN
    both = ~np.isnan(left.numpy()) & ~np.isnan(right.numpy())
    expected = np.corrcoef(left.numpy()[both], right.numpy()[both])[0, 1]
    assert correlation(left, right) == pytest.approx(expected, abs=1e-12)
    assert correlation(left, left) == pytest.approx(1)
    assert correlation(left, 1 - left) == pytest.approx(-1)


@pytest.mark.parametrize(
    "left",
    [
        torch.full((3, 3), 1 / 3),
        torch.full((3, 3), 1 / 3) + 2e-8 * maps(3, 3).float(),  # constant but for rounding
        torch.full((3, 3), NAN),
    ],
)
def test_a_constant_map_correlates_with_nothing(left):
    assert math.isnan(correlation(left, maps(3, 3).float()))
    assert math.isnan(correlation(maps(3, 3).float(), left))


def test_a_difference_counts_a_masked_cell_as_0_but_not_in_both():
    left = torch.tensor([[0.25, NAN, 0.75, NAN]])
    right = torch.tensor([[0.5, 0.5, NAN, NAN]])
    torch.testing.assert_close(difference(left, right), torch.tensor([[0.25, 0.5, -0.75, NAN]]), equal_nan=True)


# Comparison


def test_a_comparison_holds_every_measure_and_their_means():
    left, right = maps(5, 7), maps(5, 7, seed=1)
    left[3] = NAN
    found = compare(left, right)
    kept = [0, 1, 2, 4]
    assert found.mean_divergence == pytest.approx(js_divergence(left, right)[kept].mean().item())
    assert found.mean_total_variation == pytest.approx(total_variation(left, right)[kept].mean().item())
    assert found.correlation == correlation(left, right)
    torch.testing.assert_close(found.difference[kept], (right - left)[kept])
    assert sorted(found.rows_that_differ_most()) == kept
    assert found.rows_that_differ_most(1) == [int(js_divergence(left, right).nan_to_num(-1).argmax())]


def test_nothing_to_compare_has_no_mean_and_no_row():
    found = compare(torch.full((2, 3), NAN), maps(2, 3))
    assert math.isnan(found.mean_divergence)
    assert math.isnan(found.mean_total_variation)
    assert found.rows_that_differ_most() == []


def test_rows_fall_by_divergence_and_ties_stand_in_order():
    values = torch.tensor([0.1, NAN, 0.3, 0.1, 0.3, 0.0], dtype=torch.float64)
    found = Comparison(maps(6, 2), maps(6, 2), values, values, 0.0)
    assert found.rows_that_differ_most(9) == [2, 4, 0, 3, 5]
    assert found.rows_that_differ_most(3) == [2, 4, 0]


def test_a_difference_in_words():
    left = torch.tensor([[0.68, 0.02, 0.3, 0.0], [0.25, 0.25, 0.25, 0.25], [NAN, 0.9, 0.1, 0.0]])
    right = torch.tensor([[0.28, 0.31, 0.31, 0.1], [0.254, 0.246, 0.25, 0.25], [0.4, 0.5, 0.1, 0.0]])
    queries, keys = ["it", "was", "it"], ["animal", "street", "the", "the"]
    found = compare(left, right)
    assert difference_words(found, 0, ["it", "was", "too"], keys) == (
        "it: animal 0.68 in A, 0.28 in B; street 0.02 in A, 0.31 in B"
    )
    assert difference_words(found, 1, queries, keys) == "was: no weight differs by 0.005 or more"
    assert difference_words(found, 2, queries, keys) == (
        "it (2): animal not allowed in A, 0.40 in B; street 0.90 in A, 0.50 in B"
    )
    swapped = compare(left[:, [2, 3, 0, 1]], right[:, [2, 3, 0, 1]])
    assert "<b>" in difference_words(swapped, 0, ["<b>"], ["the", "the", "a", "street"])
    assert difference_words(compare(left[:, 2:], right[:, 2:]), 0, ["it", "was", "too"], ["the", "the"]) == (
        "it: the (1) 0.00 in A, 0.10 in B; the (0) 0.30 in A, 0.31 in B"
    )
