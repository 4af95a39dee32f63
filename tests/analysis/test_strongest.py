"""The strongest keys of each query, against a loop that sorts every row."""

import math

import pytest
import torch

from attnviz.analysis.strongest import ROWS, strongest


def by_sorting(weights: torch.Tensor, most: int) -> list[tuple[int, int, float]]:
    cells = []
    for query, row in enumerate(weights.tolist()):
        allowed = [(weight, key) for key, weight in enumerate(row) if not math.isnan(weight)]
        kept = sorted(allowed, key=lambda one: (-one[0], one[1]))[:most]
        cells += [(query, key, weight) for weight, key in sorted(kept, key=lambda one: one[1])]
    return cells


def as_cells(found) -> list[tuple[int, int, float]]:
    return list(zip(*(column.tolist() for column in found), strict=True))


@pytest.mark.parametrize(("queries", "keys"), [(7, 11), (13, 5), (1, 1), (ROWS + 3, 17)])
@pytest.mark.parametrize("most", [1, 3, 8, 100])
def test_it_finds_what_sorting_finds(queries, keys, most):
    weights = torch.rand(queries, keys, generator=torch.Generator().manual_seed(queries)).softmax(-1)
    assert as_cells(strongest(weights, most)) == by_sorting(weights, most)


@pytest.mark.parametrize("most", [1, 2, 4])
def test_cells_that_are_not_allowed_are_left_out(most):
    weights = torch.rand(7, 11, generator=torch.Generator().manual_seed(1))
    weights[torch.ones(7, 11, dtype=torch.bool).triu(1)] = torch.nan  # causal: one key allowed in the first row
    weights[3] = torch.nan  # a row that may attend to nothing
    found = strongest(weights, most)
    assert as_cells(found) == by_sorting(weights, most)
    assert 3 not in found.queries.tolist()
    assert found.queries.tolist().count(0) == 1


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_of_equal_weights_the_earlier_key_is_taken(most):
    weights = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.1, 0.4, 0.1, 0.4], [0, 0, 1, 0]])
    assert as_cells(strongest(weights, most)) == by_sorting(weights, most)


def test_a_weight_of_0_is_allowed_and_ranks_before_nothing():
    weights = torch.tensor([[0.0, torch.nan, 1.0]])
    assert as_cells(strongest(weights, 3)) == [(0, 0, 0.0), (0, 2, 1.0)]


def test_numbers_are_of_the_types_that_travel():
    found = strongest(torch.rand(5, 7).double(), 2)
    assert [column.dtype for column in found] == [torch.uint16, torch.uint16, torch.float32]


def test_no_query_gives_no_cell():
    assert as_cells(strongest(torch.zeros(0, 7), 2)) == []
