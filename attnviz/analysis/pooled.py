"""A small picture of one long head: under each pixel the largest of some cells, made without holding all weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from attnviz.errors import OptionError
from attnviz.layers import Block, LayerAttention
from attnviz.workers import each

BLOCK_ROWS = 128
"""Rows that are worked out at a time, or one pixel's rows where these are more."""

FORBIDDEN = -1.0
"""Stands for a cell that is not allowed while cells are compared: less than any weight."""

SMALLEST = torch.finfo(torch.float32).tiny
"""What a row's largest weight counts for at least, where weights are divided by it."""


class Pooled(NamedTuple):
    """What is under each pixel of a map of [query, key].

    A pixel covers ⌈queries / most⌉ × ⌈keys / most⌉ cells; those of the last row and column may cover fewer.
    """

    weights: Tensor  # float32 [pixel row, pixel column], the largest weight; NaN where no cell is allowed
    shares: Tensor  # the same of each weight's share of its row's largest weight, 0 to 1
    row_peaks: Tensor  # float32 [query], the largest weight of each row, its sink included; 0 where all is masked
    restricted: bool  # whether any cell at all is not allowed


def pooled(layer: LayerAttention, head: int, most: int) -> Pooled:
    """Return the max-pooled map of a head, worked out block by block.

    A single strong weight stays visible, however many cells a pixel covers. A cell is under exactly one pixel.

    Args:
        layer: the layer to read; kept as queries and keys or as weights.
        head: the head's number.
        most: the largest number of pixels a side; a shorter side has a pixel per token.

    Raises:
        OptionError: the layer has no such head, or `most` is below 1.
    """
    if most < 1:
        raise OptionError(f"Expected at least 1 pixel a side, got {most}.")
    head, (_, queries, keys) = layer.checked(head), layer.shape
    alone, sink = layer.of_heads(slice(head, head + 1)), layer.sink_weights(head)
    tall, wide = -(-queries // most), -(-keys // most)
    size = (-(-queries // tall), -(-keys // wide))
    weights, shares, peaks = torch.full(size, FORBIDDEN), torch.full(size, FORBIDDEN), torch.zeros(queries)
    step = max(1, BLOCK_ROWS // tall) * tall

    def add(start: int) -> bool:
        """Fill in what is under the pixels of some rows; return whether any of their cells is not allowed."""
        rows = slice(start, min(start + step, queries))
        block = alone.block(rows)
        if block.columns.start < block.columns.stop:
            across = _pooled_columns(block, wide)  # [row, pixel column]
            peaks[rows] = across.amax(1).clamp_min(0)
            if sink is not None:
                peaks[rows] = peaks[rows].maximum(sink[rows])
            first = block.columns.start // wide
            place = (slice(start // tall, -(-rows.stop // tall)), slice(first, first + across.shape[1]))
            weights[place] = _pooled_rows(across, tall)
            shares[place] = _pooled_rows(across / peaks[rows, None].clamp_min(SMALLEST), tall)
        return _restricts(block, keys)

    restricted = any(each(add, range(0, queries, step), layer.tensors[0].device))
    return Pooled(_without_forbidden(weights), _without_forbidden(shares), peaks, restricted)


def _restricts(block: Block, keys: int) -> bool:
    """Return whether any cell of these rows is not allowed."""
    if block.columns.stop - block.columns.start < keys:
        return True
    return block.allowed is not None and not bool(block.allowed.all())


def _pooled_columns(block: Block, wide: int) -> Tensor:
    """Return the largest of every `wide` cells of each row of one head; `FORBIDDEN` where none is allowed."""
    weights = block.weights[0]
    if block.allowed is not None:
        allowed = block.allowed.reshape(-1, *block.allowed.shape[-2:])[0]
        weights = weights.masked_fill(~allowed, FORBIDDEN)
    if block.columns.start % wide:
        weights = functional.pad(weights, (block.columns.start % wide, 0), value=FORBIDDEN)
    return functional.max_pool1d(weights, wide, ceil_mode=True).cpu()


def _pooled_rows(across: Tensor, tall: int) -> Tensor:
    """Return the largest of every `tall` rows, [pixel row, pixel column]."""
    missing = -across.shape[0] % tall
    return functional.pad(across, (0, 0, 0, missing), value=FORBIDDEN).unflatten(0, (-1, tall)).amax(1)


def _without_forbidden(table: Tensor) -> Tensor:
    """Return NaN in place of `FORBIDDEN`."""
    return table.masked_fill_(table < 0, torch.nan)
