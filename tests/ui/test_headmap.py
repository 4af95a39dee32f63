"""The part of a head's map that is drawn, and its table."""

import math

import pytest
import torch
from torch import Tensor

from attnviz.experiment import Experiment, run_experiment
from attnviz.ui.headmap import HeadMap, read_head
from attnviz.ui.view import View

DOG = "the cat saw the dog because the dog was loud"


def view_of(**options) -> View:
    trace = run_experiment(Experiment(text=DOG, **options)).trace
    return View(trace, trace.role(), 0, 0, "")


def head_map(weights: Tensor, allowed: Tensor, labels, **options) -> HeadMap:
    places = {"first_query": 0, "first_key": 0, "has_sink": False} | options
    return HeadMap(weights, allowed, labels, labels[: weights.shape[1]], **places)


def test_rows_and_columns_of_the_table_are_told_apart_by_position():
    table = read_head(view_of(), 1, 512).table()
    assert table.index.is_unique
    assert table.columns.is_unique
    assert list(table.index[[0, 3, 4, 7]]) == ["0 the", "3 the", "4 dog", "7 dog"]
    assert list(table.columns) == list(table.index)


def test_the_table_holds_the_weights_and_nothing_where_masked():
    view = view_of(causal=True)
    table, weights = read_head(view, 2, 512).table(), view.trace.weights(0, 2)
    for row in range(10):
        for column in range(10):
            value = table.iloc[row, column]
            assert math.isnan(value) if column > row else value == pytest.approx(float(weights[row, column]), abs=1e-6)


@pytest.mark.parametrize(("first_query", "first_key"), [(0, 0), (3, 5), (7, 0)])
def test_a_part_is_the_part_of_the_whole(first_query, first_key):
    view = view_of(causal=True)
    part = read_head(view, 3, 4, first_query, first_key)
    rows, columns = slice(first_query, first_query + 4), slice(first_key, first_key + 4)
    assert torch.allclose(part.weights, view.trace.weights(0, 3)[rows, columns], atol=1e-6)
    assert torch.equal(part.allowed, view.trace.allowed(0)[rows, columns])
    assert part.query_labels == tuple(DOG.split()[rows])
    assert part.key_labels == tuple(DOG.split()[columns])
    assert part.table().index[0] == f"{first_query} {DOG.split()[first_query]}"
    assert part.table().columns[0] == f"{first_key} {DOG.split()[first_key]}"


def test_the_sink_is_a_column_without_a_position():
    weights = torch.tensor([[0.25, 0.5], [0.125, 0.75]])
    part = head_map(weights, torch.ones(2, 2, dtype=torch.bool), ("a", "sink"), first_key=7, has_sink=True)
    assert list(part.table().columns) == ["7 a", "sink"]
    assert part.table()["sink"].tolist() == [0.5, 0.75]


def test_a_token_called_sink_is_not_the_sink():
    part = head_map(torch.eye(2), torch.ones(2, 2, dtype=torch.bool), ("sink", "sink"), has_sink=True)
    assert list(part.table().columns) == ["0 sink", "sink"]
