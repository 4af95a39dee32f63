"""A head's map and its table."""

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
    return View(trace, trace, trace.role(), 0, 0, "", "", "")


def head_map(weights: Tensor, labels, *, has_sink: bool = False) -> HeadMap:
    allowed = torch.ones(weights.shape, dtype=torch.bool)
    return HeadMap(weights, allowed, labels, labels[: weights.shape[1]], has_sink)


def test_rows_and_columns_of_the_table_are_told_apart_by_position():
    table = read_head(view_of(), 1).table()
    assert table.index.is_unique
    assert table.columns.is_unique
    assert list(table.index[[0, 3, 4, 7]]) == ["0 the", "3 the", "4 dog", "7 dog"]
    assert list(table.columns) == list(table.index)


def test_the_table_holds_the_weights_and_nothing_where_masked():
    view = view_of(causal=True)
    table, weights = read_head(view, 2).table(), view.trace.weights(0, 2)
    for row in range(10):
        for column in range(10):
            value = table.iloc[row, column]
            assert math.isnan(value) if column > row else value == pytest.approx(float(weights[row, column]), abs=1e-6)


def test_the_sink_is_a_column_without_a_position():
    part = head_map(torch.tensor([[0.25, 0.5], [0.125, 0.75]]), ("a", "sink"), has_sink=True)
    assert list(part.table().columns) == ["0 a", "sink"]
    assert part.table()["sink"].tolist() == [0.5, 0.75]


def test_a_token_called_sink_is_not_the_sink():
    part = head_map(torch.eye(2), ("sink", "sink"), has_sink=True)
    assert list(part.table().columns) == ["0 sink", "sink"]
