"""How much two maps of the same cells differ: row by row, in all, and in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.errors import ShapeError

ROWS = 256
"""Rows handled at a time, so that what is computed on the way stays small beside the maps."""

CONSTANT = 1e-6
"""Weights whose spread is below this share of the largest are equal but for float32's rounding."""

WORTH_SAYING = 0.005
"""The smallest difference of a weight that is put in words: less does not show in two decimals."""

TINY = torch.finfo(torch.float64).tiny


def js_divergence(left: Tensor, right: Tensor) -> Tensor:
    """Return the Jensen–Shannon divergence of each query row, in nats, float64 [..., query], 0 to ln 2.

    H((a + b) / 2) − (H(a) + H(b)) / 2 for the rows a and b (Lin 1991, "Divergence measures based on the Shannon
    entropy"): 0 for equal rows, ln 2 for rows without a key in common. What a row lacks to a sum of 1 (it went to an
    attention sink, or to keys that were left out) counts as one further key, the same in both maps.

    Args:
        left: [..., query, key], each row a distribution over the keys; cells that are not allowed are NaN or 0.
        right: the same shape.

    Returns:
        NaN for a row that has no weight at all in one of the maps, or in both: there is nothing to compare.

    Raises:
        ShapeError: the maps differ in shape, or are no maps.
    """
    return _of_each_row(_js_divergence, left, right)


def total_variation(left: Tensor, right: Tensor) -> Tensor:
    """Return Σ|a − b| / 2 of each query row, float64 [..., query], 0 to 1: the weight that would have to move.

    Arguments, what a row lacks to 1, NaN and errors are as in `js_divergence`.
    """
    return _of_each_row(lambda a, b: ((a - b).abs().sum(-1) / 2).clamp(0, 1), left, right)


def correlation(left: Tensor, right: Tensor) -> float:
    """Return Pearson's correlation of two maps over the cells allowed in both, −1 to 1.

    Args:
        left: [query, key]; NaN where not allowed, while a 0 counts as a weight.
        right: the same shape.

    Returns:
        NaN where one side has the same weight in all of these cells (to float32's rounding), or there is no cell.

    Raises:
        ShapeError: the maps differ in shape, or are no maps.
    """
    _check_maps(left, right)
    both = ~(left.isnan() | right.isnan())
    a, b = left[both].double(), right[both].double()
    if _is_constant(a) or _is_constant(b):
        return math.nan
    a, b = a - a.mean(), b - b.mean()
    return float((a @ b / (a.norm() * b.norm())).clamp(-1, 1))


def difference(left: Tensor, right: Tensor) -> Tensor:
    """Return right − left [query, key], −1 to 1.

    A cell that is not allowed (NaN) in one map counts as 0 there; NaN where it is in neither.
    """
    neither = left.isnan() & right.isnan()
    return (right.nan_to_num(0.0) - left.nan_to_num(0.0)).masked_fill(neither, math.nan)


@dataclass(frozen=True, eq=False)
class Comparison:
    """How much two maps of one shape differ.

    Attributes:
        left: [query, key], the map A; NaN where not allowed.
        right: [query, key], the map B.
        divergence: float64 [query], see `js_divergence`.
        total_variation: float64 [query], see `total_variation`.
        correlation: see `correlation`.
    """

    left: Tensor
    right: Tensor
    divergence: Tensor
    total_variation: Tensor
    correlation: float

    @property
    def mean_divergence(self) -> float:
        """The mean divergence over the rows that have one, in nats, 0 to ln 2; NaN where none has."""
        return float(self.divergence.nanmean())

    @property
    def mean_total_variation(self) -> float:
        """The mean total variation over the rows that have one, 0 to 1; NaN where none has."""
        return float(self.total_variation.nanmean())

    @property
    def difference(self) -> Tensor:
        """B − A [query, key], see `difference`."""
        return difference(self.left, self.right)

    def rows_that_differ_most(self, most: int = 5) -> list[int]:
        """Return rows by falling divergence, of equal ones the earlier first; rows without a divergence never."""
        rows = [(-value, row) for row, value in enumerate(self.divergence.tolist()) if not math.isnan(value)]
        return [row for _, row in sorted(rows)[:most]]


def compare(left: Tensor, right: Tensor) -> Comparison:
    """Return how much the map `right` (B) differs from the map `left` (A).

    Args:
        left: [query, key], NaN (or, but for the correlation, 0) where not allowed.
        right: the same shape; maps of different tokens are laid over each other by `attnviz.analysis.alignment` first.

    Raises:
        ShapeError: the maps differ in shape, or are no maps.
    """
    return Comparison(
        left=left,
        right=right,
        divergence=js_divergence(left, right),
        total_variation=total_variation(left, right),
        correlation=correlation(left, right),
    )


def difference_words(comparison: Comparison, row: int, query_labels: Sequence[str], key_labels: Sequence[str]) -> str:
    """Return what differs most in a row: "it: animal 0.68 in A, 0.28 in B; street 0.02 in A, 0.31 in B".

    The two keys whose weights differ most, of equal ones the earlier, if by 0.005 or more. A label that occurs more
    than once is told by its position, counted from 0: "the (7)".

    Returns:
        Plain text: the labels are not escaped.
    """
    left, right = comparison.left[row].tolist(), comparison.right[row].tolist()
    changes = [(-abs(change), key) for key, change in enumerate(comparison.difference[row].tolist())]
    told = [key for change, key in sorted(changes)[:2] if -change >= WORTH_SAYING]  # NaN is not told either
    query = _told_apart(query_labels, row)
    if not told:
        return f"{query}: no weight differs by {WORTH_SAYING} or more"
    keys = [
        f"{_told_apart(key_labels, key)} {_weight_in(left[key], 'A')}, {_weight_in(right[key], 'B')}" for key in told
    ]
    return f"{query}: {'; '.join(keys)}"


def _of_each_row(measure: Callable[[Tensor, Tensor], Tensor], left: Tensor, right: Tensor) -> Tensor:
    _check_maps(left, right)
    parts = zip(left.split(ROWS, -2), right.split(ROWS, -2), strict=True)
    return torch.cat([measure(_distributions(a), _distributions(b)) for a, b in parts], -1)


def _distributions(weights: Tensor) -> Tensor:
    """Return rows that sum to 1, float64 [..., query, key + 1]: the last is what a row lacks; NaN for an empty row."""
    weights = weights.detach().cpu().double().nan_to_num(0.0)
    total = weights.sum(-1, keepdim=True)
    return torch.cat([weights, (1 - total).clamp_min(0)], -1).masked_fill(total == 0, math.nan)


def _js_divergence(a: Tensor, b: Tensor) -> Tensor:
    middle = ((a + b) / 2).clamp_min(TINY)
    nats = torch.xlogy(a, a / middle) + torch.xlogy(b, b / middle)
    return (nats.sum(-1) / 2).clamp(0, math.log(2))


def _is_constant(values: Tensor) -> bool:
    return not len(values) or bool(values.max() - values.min() <= CONSTANT * values.abs().max())


def _check_maps(left: Tensor, right: Tensor) -> None:
    if left.shape != right.shape or left.dim() < 2:  # noqa: PLR2004
        raise ShapeError(
            f"Expected two maps [query, key] of one shape, got {list(left.shape)} and {list(right.shape)}. "
            "Lay them over each other with align first."
        )


def _told_apart(labels: Sequence[str], at: int) -> str:
    """Return a label, with its position where it is not the only one of its kind."""
    return f"{labels[at]} ({at})" if list(labels).count(labels[at]) > 1 else labels[at]


def _weight_in(weight: float, name: str) -> str:
    return f"not allowed in {name}" if math.isnan(weight) else f"{weight:.2f} in {name}"
