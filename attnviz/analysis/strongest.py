"""The strongest keys of each query: what lines can show of a map too large to send whole."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

ROWS = 256
"""Rows handled at a time, so that what is computed on the way stays small beside the map."""


class Strongest(NamedTuple):
    """Cells of one map, ordered by query, then by key."""

    queries: Tensor  # uint16 [cell]
    keys: Tensor  # uint16 [cell]
    weights: Tensor  # float32 [cell], 0 to 1


def strongest(weights: Tensor, most: int) -> Strongest:
    """Return the cells of each row that hold its largest weights.

    Of equal weights the earlier key is taken, so that the same map gives the same cells.

    Args:
        weights: [query, key], NaN where not allowed; at most 65,536 a side.
        most: how many keys of a query, at least 1.

    Returns:
        `min(most, allowed keys)` cells of each query: fewer where fewer are allowed, none where none is.
    """
    parts = [_strongest_keys(rows, min(most, rows.shape[1])) for rows in weights.float().split(ROWS)]
    keys = torch.cat(parts)
    queries = torch.arange(len(keys))[:, None].expand_as(keys)
    kept = keys < weights.shape[1]
    queries, keys = queries[kept], keys[kept]
    return Strongest(queries.to(torch.uint16), keys.to(torch.uint16), weights[queries, keys].float())


def _strongest_keys(weights: Tensor, most: int) -> Tensor:
    """Return the keys of the `most` largest weights of each row, rising, then the number of keys for "none"."""
    ranked = weights.nan_to_num(-1)
    values, keys = ranked.topk(min(most + 1, ranked.shape[1]), dim=-1)
    if values.shape[1] > most:  # whichever of two equal weights topk likes: at the border, that decides who is left out
        tied = (values[:, most - 1] == values[:, most]) & (values[:, most] >= 0)
        keys[tied] = ranked[tied].argsort(dim=-1, descending=True, stable=True)[:, : most + 1]
    return keys[:, :most].masked_fill(values[:, :most] < 0, ranked.shape[1]).sort(dim=-1).values
