"""One number per head, and one small picture per head, in a single pass over the weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.layers import Block, LayerAttention, precise
from attnviz.workers import each


class Statistic(NamedTuple):
    """What a number says of a head: for a heading, a help text and a reference.

    Attributes:
        title: what a person reads above the column.
        definition: one sentence.
        range: the numbers it can take.
        unit: of the number; empty for a share of the weight.
    """

    title: str
    definition: str
    range: str
    unit: str = ""


SHARE = "0 to 1"
DEFINITIONS = {
    "entropy": Statistic(
        "Entropy",
        "−Σ w ln w of a row: how spread its weights are. With an attention sink, over the keys alone.",
        "0 (all on one key) to ln(keys)",
        "nats",
    ),
    "distance": Statistic(
        "Distance",
        "Σ w·|query position − key position|: how far away what is attended to stands. NaN for cross-attention.",
        "0 to keys − 1",
        "tokens",
    ),
    "self_weight": Statistic("Self", "Weight on the query's own token.", SHARE),
    "previous_weight": Statistic("Previous", "Weight on the token before, over the rows that have one.", SHARE),
    "next_weight": Statistic("Next", "Weight on the token after, over the rows that may attend to one.", SHARE),
    "first_weight": Statistic("First token", "Weight on the first key.", SHARE),
    "special_weight": Statistic("Special", "Weight on special tokens such as [CLS], together.", SHARE),
    "peak_weight": Statistic("Peak", "The largest weight of a row.", SHARE),
}
"""Each is a mean over the query rows of a head; rows in which nothing is allowed do not count.

self_weight, previous_weight and next_weight are means over the rows that have such a key; NaN for cross-attention,
where no row has such a key (one token), or where the mask forbids every one of them (next_weight under a causal mask).
special_weight is NaN where no token is special.

One token: entropy 0, distance 0, self_weight 1, previous_weight and next_weight NaN.
Every row masked: all NaN.
"""

STATISTICS = tuple(DEFINITIONS)
"""The names, in the order of the columns."""

NEIGHBOURS = {"self_weight": 0, "previous_weight": -1, "next_weight": 1}
ENTROPY, DISTANCE, FIRST, SPECIAL, PEAK = (
    STATISTICS.index(name) for name in ("entropy", "distance", "first_weight", "special_weight", "peak_weight")
)
BESIDE = slice(STATISTICS.index("self_weight"), STATISTICS.index("next_weight") + 1)


class Summary(NamedTuple):
    """What a pass over one layer leaves."""

    statistics: Tensor  # float32 [head, statistic], in the order of STATISTICS
    thumbnails: Tensor  # float32 [head, size, size], the largest weight under each pixel


def summarize(layer: LayerAttention, *, special: Tensor, size: int) -> Summary:
    """Return the statistics and the max-pooled thumbnails of every head of a layer.

    Args:
        layer: the layer to read; its weights are made block by block and never held whole.
        special: bool [key], True where the key is a special token.
        size: height and width of a thumbnail. Pixel i covers rows floor(i·T/size) to ceil((i+1)·T/size),
            as `torch.nn.functional.adaptive_max_pool2d` has it, so that a single strong weight stays visible.

    Returns:
        float32 statistics [head, statistic] and thumbnails [head, size, size] on the CPU.
    """
    device = layer.tensors[0].device
    parts = each(lambda part: _summarize(part, special, size), list(layer.parts()), device)
    return Summary(*(torch.cat(tables) for tables in zip(*parts, strict=True)))


def _summarize(layer: LayerAttention, special: Tensor, size: int) -> Summary:
    """Return the summary of a layer whose blocks hold all its heads."""
    heads, queries, keys = layer.shape
    rows = _RowStatistics(layer, special)
    pooled = torch.zeros(heads, size, keys, device=layer.tensors[0].device)
    for block in layer.blocks():
        rows.add(block)
        _pool_rows(pooled, block, queries)
    return Summary(rows.means(), torch.nn.functional.adaptive_max_pool1d(pooled.cpu(), size))


def _pool_rows(pooled: Tensor, block: Block, queries: int) -> None:
    """Raise each thumbnail row [head, size, key] to the largest weight of the block's rows under it."""
    size = pooled.shape[1]
    first, last = block.rows.start * size // queries, -(-block.rows.stop * size // queries)
    for pixel in range(first, last):
        start = max(pixel * queries // size, block.rows.start)
        stop = min(-(-(pixel + 1) * queries // size), block.rows.stop)
        target = pooled[:, pixel, block.columns]
        under = block.weights[:, start - block.rows.start : stop - block.rows.start]
        torch.maximum(target, under.amax(1), out=target)


class _RowStatistics:
    """Every statistic of every row, filled block by block and averaged at the end."""

    def __init__(self, layer: LayerAttention, special: Tensor) -> None:
        heads, queries, self.keys = layer.shape
        self.device = layer.tensors[0].device
        self.special = special.nonzero().flatten().to(self.device)
        self.steps = torch.tensor(list(NEIGHBOURS.values()), device=self.device)
        self.places = torch.arange(queries, device=self.device) + layer.rule.offset  # of the queries among the keys
        self.causal = layer.rule.causal
        self.has_positions = layer.role != "cross"
        self.values = torch.zeros(heads, queries, len(STATISTICS), device=self.device)
        self.live = torch.zeros(heads, queries, dtype=torch.bool, device=self.device)
        self.near = torch.zeros(heads, queries, len(NEIGHBOURS), dtype=torch.bool, device=self.device)

    def add(self, block: Block) -> None:
        """Add the rows of a block."""
        if not block.weights.shape[-1]:
            return
        values = self.values[:, block.rows]
        self.live[:, block.rows] = _live_rows(block)
        values[..., ENTROPY] = torch.linalg.vecdot(block.weights, block.log_weights).neg_()
        values[..., PEAK] = block.weights.amax(-1)
        if block.columns.start == 0:
            values[..., FIRST] = block.weights[..., 0]
        if len(self.special):
            values[..., SPECIAL] = _on_columns(block, self.special)
        if self.has_positions:
            self._add_positions(block, values)

    def means(self) -> Tensor:
        """Return means over the rows that count, float32 [head, statistic]; NaN where none does or none has meaning."""
        counted = self.live[..., None].expand_as(self.values).clone()  # [head, query, statistic]
        beside = self.places[:, None] + self.steps
        counted[..., BESIDE] &= (beside >= 0) & (beside < self.keys)
        counted[..., BESIDE] &= self.near.any(1, keepdim=True)  # no meaning where each of them is forbidden
        counted[..., DISTANCE] &= self.has_positions
        counted[..., SPECIAL] &= bool(len(self.special))
        sums = self.values.where(counted, 0).sum(1, dtype=precise(self.device))
        counts = counted.sum(1)
        return (sums / counts.where(counts > 0, torch.nan)).float().cpu()

    def _add_positions(self, block: Block, values: Tensor) -> None:
        """Add the distances, and the weights on the keys beside each query."""
        here = self.places[block.rows, None]
        there = torch.arange(block.columns.start, block.columns.stop, device=self.device)
        values[..., DISTANCE] = self._distances(block, here, there)
        beside = here + self.steps
        inside = (beside >= block.columns.start) & (beside < block.columns.stop)
        index = (beside - block.columns.start).where(inside, 0)  # [row, neighbour]
        values[..., BESIDE] = block.weights.take_along_dim(index[None], -1).where(inside, 0)
        if block.allowed is None:
            self.near[:, block.rows] = inside
        else:
            allowed = block.allowed.reshape(-1, *block.allowed.shape[-2:])
            self.near[:, block.rows] = inside & allowed.take_along_dim(index[None], -1)

    def _distances(self, block: Block, here: Tensor, there: Tensor) -> Tensor:
        """Return Σ w·|query position − key position| [head, row]."""
        if not self.causal:
            steps = (here - there).abs_().to(block.weights)  # [row, column]
            return torch.linalg.vecdot(block.weights, steps.expand_as(block.weights))
        # Keys come before their query, so the steps are one row of numbers for the whole block, less a constant a row.
        last = here[-1]
        back = torch.mv(block.weights.flatten(0, 1), (last - there).to(block.weights)).view(block.weights.shape[:2])
        return back - block.weights.sum(-1) * (last - here)[:, 0]


def _live_rows(block: Block) -> Tensor:
    """Return which rows have any allowed cell, bool [head or 1, row]."""
    if block.allowed is None or block.sure:
        return torch.ones(1, block.weights.shape[1], dtype=torch.bool, device=block.weights.device)
    return block.allowed.reshape(-1, *block.allowed.shape[-2:]).any(-1)


def _on_columns(block: Block, columns: Tensor) -> Tensor:
    """Return the sum of the weights [head, row] on some key columns."""
    inside = columns[(columns >= block.columns.start) & (columns < block.columns.stop)]
    return block.weights[..., inside - block.columns.start].sum(-1)
