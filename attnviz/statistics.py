"""One number per head, and one small picture per head, in a single pass over the weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.layers import Block, LayerAttention, precise

STATISTICS = (
    "entropy",
    "distance",
    "self_weight",
    "previous_weight",
    "next_weight",
    "first_weight",
    "special_weight",
    "peak_weight",
)
"""Each is a mean over the query rows of a head; rows in which nothing is allowed do not count.

- entropy: −Σ w ln w, in nats; 0 (one key) to ln(keys). With an attention sink, over the keys alone.
- distance: Σ w·|query position − key position|, in tokens; 0 to keys − 1. NaN for cross-attention.
- self_weight, previous_weight, next_weight: weight on the key 0 before, 1 before, 1 after the query; 0 to 1.
  Over the rows that have such a key. NaN for cross-attention, where no row has such a key (one token), or
  where the mask forbids every one of them (next_weight under a causal mask).
- first_weight: weight on the first key; 0 to 1.
- special_weight: sum of the weights on special tokens; 0 to 1. NaN where no token is special.
- peak_weight: the largest weight of a row; 0 to 1.

One token: entropy 0, distance 0, self_weight 1, previous_weight and next_weight NaN.
Every row masked: all NaN.
"""

NEIGHBOURS = {"self_weight": 0, "previous_weight": -1, "next_weight": 1}


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
    """Sums over query rows, added block by block."""

    def __init__(self, layer: LayerAttention, special: Tensor) -> None:
        heads, _, self.keys = layer.shape
        self.offset = layer.rule.offset
        self.has_positions = layer.role != "cross"
        self.device = layer.tensors[0].device
        self.special = special.nonzero().flatten().to(self.device)
        self.sums = torch.zeros(heads, len(STATISTICS), dtype=precise(self.device), device=self.device)
        self.counts = torch.zeros_like(self.sums)
        self.meant = torch.zeros_like(self.sums, dtype=torch.bool)

    def add(self, block: Block) -> None:
        """Add the rows of a block."""
        if not block.weights.shape[-1]:
            return
        live = _live_rows(block)
        self._add("entropy", -torch.linalg.vecdot(block.weights, block.log_weights), live)
        self._add("peak_weight", block.weights.amax(-1), live)
        self._add("first_weight", _on_columns(block, torch.zeros(1, dtype=torch.long, device=self.device)), live)
        if len(self.special):
            self._add("special_weight", _on_columns(block, self.special), live)
        if self.has_positions:
            self._add_positions(block, live)

    def means(self) -> Tensor:
        """Return sums over counts, float32 [head, statistic]; NaN where nothing was counted."""
        meant = self.meant & (self.counts > 0)
        return (self.sums / self.counts.where(meant, torch.nan)).float().cpu()

    def _add(self, name: str, values: Tensor, rows: Tensor, *, meant: Tensor | bool = True) -> None:
        """Add values [head, row] of the rows [head or 1, row] that count; `meant` [head] where any has a meaning."""
        column = STATISTICS.index(name)
        self.sums[:, column] += values.where(rows, 0).sum(-1)
        self.counts[:, column] += rows.sum(-1)
        self.meant[:, column] |= meant

    def _add_positions(self, block: Block, live: Tensor) -> None:
        here = torch.arange(block.rows.start, block.rows.stop, device=self.device) + self.offset
        there = torch.arange(block.columns.start, block.columns.stop, device=self.device)
        steps = (here[:, None] - there[None, :]).abs().to(block.weights)
        self._add("distance", torch.linalg.vecdot(block.weights, steps.expand_as(block.weights)), live)
        for name, step in NEIGHBOURS.items():
            self._add_neighbour(name, block, here + step, live)

    def _add_neighbour(self, name: str, block: Block, at: Tensor, live: Tensor) -> None:
        """Add each row's weight on the key at position `at` [row], over the rows that have such a key."""
        exists = (at >= 0) & (at < self.keys)
        inside = (at >= block.columns.start) & (at < block.columns.stop)
        index = (at - block.columns.start).where(inside, 0)[:, None]
        values = block.weights.take_along_dim(index[None], -1)[..., 0].where(inside, 0)
        allowed = (
            inside
            if block.allowed is None
            else inside & block.allowed.take_along_dim(index.expand(*block.allowed.shape[:-1], 1), -1)[..., 0]
        )
        self._add(name, values, live & exists, meant=allowed.any(-1))


def _live_rows(block: Block) -> Tensor:
    """Return which rows have any allowed cell, bool [head or 1, row]."""
    if block.allowed is None:
        return torch.ones(1, block.weights.shape[1], dtype=torch.bool, device=block.weights.device)
    return block.allowed.reshape(-1, *block.allowed.shape[-2:]).any(-1)


def _on_columns(block: Block, columns: Tensor) -> Tensor:
    """Return the sum of the weights [head, row] on some key columns."""
    inside = columns[(columns >= block.columns.start) & (columns < block.columns.stop)]
    return block.weights[..., inside - block.columns.start].sum(-1)
