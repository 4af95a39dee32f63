"""How far the heads of a trace are from each other, in which order alike ones stand together, and where in a plane."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.hub import Progress
from attnviz.trace import AttentionTrace
from attnviz.workers import workers_of_one_core

if TYPE_CHECKING:
    import pandas as pd

MOST_CELLS = 1_000_000_000
"""Cells worked out at most, over all pairs of heads: about 5 s on two cores; above, not every query row is."""

FEWEST_ROWS = 4
"""Query rows that are always worked out, where there are as many."""

WEIGHT_BYTES = 16 << 20
"""Bytes of the weights of all heads, in some query rows, that are held at a time; thrice that while they are made."""

BLOCK_CELLS = 1 << 17
"""Cells of one operation: a megabyte, which stays in a core's cache."""

MOST_TURNED = 512
"""Heads up to which a tree's branches are turned so that neighbours are alike; with more that takes seconds."""

FARTHEST = math.sqrt(math.log(2))
"""The largest Jensen–Shannon distance: no key in common in any row."""

TINY = torch.finfo(torch.float64).tiny

Places = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class HeadDivergences:
    """The mean Jensen–Shannon divergence of every two heads of a role.

    Attributes:
        places: (layer, head) of each, rising.
        divergence: float64 [head, head], in nats, 0 to ln 2; symmetric, 0 on the diagonal. NaN where the two heads
            have no row with a weight in both.
        rows: how many query rows were worked out.
        of_rows: how many query rows there are.
    """

    places: Places
    divergence: np.ndarray
    rows: int
    of_rows: int

    @property
    def distance(self) -> np.ndarray:
        """The Jensen–Shannon distance √divergence, float64 [head, head], 0 to √ln 2 ≈ 0.83.

        A metric for one row (Endres & Schindelin 2003, "A new metric for probability distributions") and so for
        the root of a mean over the same rows.
        """
        return np.sqrt(self.divergence)


def head_divergences(
    trace: AttentionTrace, role: str | None = None, *, progress: Progress | None = None
) -> HeadDivergences:
    """Return how far every two heads of a role are from each other.

    The Jensen–Shannon divergence H((a + b) / 2) − (H(a) + H(b)) / 2 of two heads' rows (Lin 1991), a mean over the
    query rows in which both have a weight. What a row lacks to a sum of 1 (an attention sink) counts as one further
    key, as in `attnviz.analysis.comparison.js_divergence`. Where all rows would take more than `MOST_CELLS`, evenly
    spaced ones are worked out, each with all its keys; `rows` says how many.

    Args:
        trace: what to read.
        role: the role, where there is more than one.
        progress: called now and then with the share done, 0 to 1, and a sentence.

    Raises:
        OptionError: the trace has no such role.
    """
    places, role = _places(trace, role), trace.role(role)
    count = len(places)
    rows = _spaced_rows(trace, role, pairs=count * (count - 1) // 2)
    pairs = [(one, range(one + 1, count)) for one in range(count)]
    divergence = np.triu(_mean_divergences(trace, role, rows, pairs, progress), 1)
    return HeadDivergences(places, divergence + divergence.T, len(rows), len(trace.query_tokens(role)))


def nearest_heads(trace: AttentionTrace, layer: int, head: int, role: str | None = None) -> pd.DataFrame:
    """Return all other heads of a role from the nearest to the farthest.

    Args:
        trace: what to read.
        layer: the layer of the head that the others are compared to.
        head: its number.
        role: the role, where there is more than one.

    Returns:
        layer, head and divergence: in nats, 0 to ln 2, as in `head_divergences`. Of heads equally near the earlier
        layer and head comes first; last come those with NaN, which have no row in common. `attrs` holds how many
        query rows were worked out, `rows`, of how many, `of_rows`.

    Raises:
        OptionError: there is no such role, layer or head.
    """
    import pandas as pd

    head = trace.layer(layer, role).checked(head)
    places, role = _places(trace, role), trace.role(role)
    here = places.index((layer, head))
    rows = _spaced_rows(trace, role, pairs=len(places))
    divergence = _mean_divergences(trace, role, rows, [(here, range(len(places)))], None)[here]
    table = pd.DataFrame(places, columns=["layer", "head"]).assign(divergence=divergence).drop(index=here)
    table = table.sort_values(["divergence", "layer", "head"], ignore_index=True)
    table.attrs = {"rows": len(rows), "of_rows": len(trace.query_tokens(role))}
    return table


class Clustering(NamedTuple):
    """Heads in an order in which alike ones stand together."""

    order: tuple[int, ...]  # positions of the heads, from the left to the right of the tree
    linkage: np.ndarray  # float64 [head − 1, 4], as `scipy.cluster.hierarchy.linkage` gives it


def cluster(distance: np.ndarray) -> Clustering:
    """Return the tree that average linkage makes of heads (UPGMA, Sokal & Michener 1958).

    Up to `MOST_TURNED` heads, its branches are turned so that neighbours are as near as can be (Bar-Joseph et al. 2001,
    "Fast optimal leaf ordering for hierarchical clustering").

    Args:
        distance: [head, head], symmetric, 0 on the diagonal, as `HeadDivergences.distance`; a NaN counts as the
            largest Jensen–Shannon distance.
    """
    from scipy.cluster import hierarchy
    from scipy.spatial.distance import squareform

    count = len(distance)
    if count == 1:
        return Clustering((0,), np.zeros((0, 4)))
    pairs = squareform(_known(distance), checks=False)
    tree = hierarchy.linkage(pairs, "average", optimal_ordering=count <= MOST_TURNED)
    return Clustering(tuple(hierarchy.leaves_list(tree).tolist()), tree)


def embed(distance: np.ndarray) -> np.ndarray:
    """Return points in a plane whose distances follow those of the heads, float64 [head, 2].

    Classical multidimensional scaling (Torgerson 1952), which has one solution up to mirroring: along each axis, the
    first head that is at least half as far out as the farthest has a positive coordinate. With a scikit-learn that
    lacks it, the stress of the distances is minimised instead (`sklearn.manifold.MDS`), from a fixed seed.

    Args:
        distance: [head, head], symmetric, 0 on the diagonal, as `HeadDivergences.distance`; a NaN counts as the
            largest Jensen–Shannon distance.

    Returns:
        Points around (0, 0), in the unit of the distance; all at (0, 0) where no distance is above 0.
    """
    distance = _known(distance)
    if not distance.any():
        return np.zeros((len(distance), 2))
    points = _scaled(distance)
    points = points - points.mean(axis=0)
    outside = np.abs(points) >= np.abs(points).max(axis=0) / 2
    first = points[outside.argmax(axis=0), [0, 1]]
    return points * np.where(first < 0, -1.0, 1.0)


def _places(trace: AttentionTrace, role: str | None) -> Places:
    return tuple((layer, head) for layer in trace.layers(role) for head in range(trace.heads(layer, role)))


def _spaced_rows(trace: AttentionTrace, role: str, *, pairs: int) -> list[int]:
    """Return the query rows to work out: all, or as many evenly spaced ones as `MOST_CELLS` has room for."""
    queries, keys = len(trace.query_tokens(role)), len(trace.key_tokens(role))
    count = min(queries, max(FEWEST_ROWS, MOST_CELLS // max(1, pairs * (keys + 1))))
    return [(2 * at + 1) * queries // (2 * count) for at in range(count)]


Pairs = Sequence[tuple[int, range]]
"""Heads, each with those it is compared to."""


def _mean_divergences(
    trace: AttentionTrace, role: str, rows: Sequence[int], pairs: Pairs, progress: Progress | None
) -> np.ndarray:
    """Return the mean divergence over rows of some pairs of heads, float64 [head, head]; the others are NaN."""
    count = len(_places(trace, role))
    sums, counts = (torch.zeros(count, count, dtype=torch.float64) for _ in range(2))
    parts = list(_parts(rows, count, len(trace.key_tokens(role))))
    for at, part in enumerate(parts):
        heads = _Heads.of(trace, role, part)
        report = _share_of(progress, at, len(parts), f"Comparing {count:,} heads")
        _each(partial(heads.add, sums, counts), pairs, report)
    return (sums / counts.where(counts > 0, math.nan)).numpy()


def _parts(rows: Sequence[int], heads: int, keys: int) -> Iterator[Sequence[int]]:
    """Yield so many rows that their weights in all heads are in `WEIGHT_BYTES` and in one head in `BLOCK_CELLS`."""
    step = max(1, min(WEIGHT_BYTES // (8 * heads * (keys + 1)), BLOCK_CELLS // (keys + 1)))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


class _Heads(NamedTuple):
    """Some query rows of every head; a row's last cell is what it lacks to a sum of 1."""

    halves: Tensor  # float64 [head, row, key + 1], half of each weight, and never quite 0
    negative_entropies: Tensor  # float64 [head, row], Σ w ln w
    live: Tensor  # float64 [head, row], 1 where the row has a weight, else 0

    @classmethod
    def of(cls, trace: AttentionTrace, role: str, rows: Sequence[int]) -> _Heads:
        layers = [trace.layer(number, role).weights(slice(None), rows) for number in trace.layers(role)]
        weights = torch.cat(layers).double()  # [head, row, key]
        total = weights.sum(-1, keepdim=True)
        lacking = (1 - total).clamp_min_(0)
        halves = torch.cat([weights, lacking], -1).div_(2).add_(TINY)
        negative_entropies = torch.stack([_sum_of_w_log_w(half, half) for half in halves])
        return cls(halves, negative_entropies, (total[..., 0] > 0).double())

    def add(self, sums: Tensor, counts: Tensor, one: int, others: range) -> None:
        """Add to [head, head] the divergences of one head from others, and how many rows they are of."""
        step = max(1, BLOCK_CELLS // self.halves[0].numel())
        for start in range(others.start, others.stop, step):
            block = slice(start, min(start + step, others.stop))
            mean_of_both = (self.negative_entropies[block] + self.negative_entropies[one]) / 2
            nats = mean_of_both - _sum_of_w_log_w(self.halves[block], self.halves[one])  # [head, row]
            live = self.live[block] * self.live[one]
            sums[one, block] += (nats.clamp_(0, math.log(2)) * live).sum(-1)
            counts[one, block] += live.sum(-1)


def _sum_of_w_log_w(halves: Tensor, others: Tensor) -> Tensor:
    """Return Σ w ln w over the keys, where w is the mean of two weights."""
    mean = halves + others
    return torch.linalg.vecdot(mean, mean.log())


def _each(work: Callable[[int, range], None], pairs: Pairs, report: Callable[[float], None]) -> None:
    """Do the work for each head, several at a time; no two touch the same row of the sums."""
    cells, done = sum(len(others) for _, others in pairs) or 1, 0
    for (_, others), _ in zip(pairs, workers_of_one_core().map(lambda pair: work(*pair), pairs), strict=True):
        done += len(others)
        report(done / cells)


def _share_of(progress: Progress | None, at: int, parts: int, sentence: str) -> Callable[[float], None]:
    """Return what to call with the share done of one part; it passes on each further hundredth of the whole."""
    told = at / parts

    def report(share: float) -> None:
        nonlocal told
        done = (at + share) / parts
        if progress and (done - told >= 0.01 or told < done == 1):  # noqa: PLR2004
            told = done
            progress(done, sentence)

    return report


def _known(distance: np.ndarray) -> np.ndarray:
    """Return distances without NaN, exactly symmetric."""
    known = np.nan_to_num(np.asarray(distance, dtype=np.float64), nan=FARTHEST)
    return (known + known.T) / 2


def _scaled(distance: np.ndarray) -> np.ndarray:
    """Return what multidimensional scaling makes of distances, some of them above 0, [head, 2]."""
    from sklearn import manifold

    if not hasattr(manifold, "ClassicalMDS"):  # before scikit-learn 1.8
        return manifold.MDS(2, dissimilarity="precomputed", random_state=0).fit_transform(distance)
    with np.errstate(invalid="ignore"):  # the root of an axis of no length, which rounding has made negative
        return np.nan_to_num(manifold.ClassicalMDS(2, metric="precomputed").fit_transform(distance), nan=0.0)
