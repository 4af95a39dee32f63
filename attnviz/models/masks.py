"""From the mask a model hands to its attention to a rule: which cells are allowed, and what is added to a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.rules import ScoreRule, cells

FORBIDDING = -1e4
"""An additive mask at or below this forbids a cell: exp(−10,000) is 0 in every dtype. Models write −10,000, −1e9,
the dtype's minimum or −inf; a bias that falls with distance (ALiBi) stays far above."""


class Crop(NamedTuple):
    """Which row of the batch, which queries and which keys are looked at; a list of positions where there are holes."""

    item: int
    rows: slice | list[int]
    columns: slice | list[int]


@dataclass(frozen=True)
class MaskParts:
    """What a mask says, in the terms of a `ScoreRule`."""

    causal: bool = False
    window: int | None = None
    mask: Tensor | None = None  # bool [query, key] or [head, query, key]
    bias: Tensor | None = None  # float [query, key] or [head, query, key]


class MaskReader:
    """Reads masks; one that several layers share is read once, so that they share what it says."""

    def __init__(self) -> None:
        """Start with nothing read."""
        self._read: dict[tuple[int, str], tuple[Tensor, MaskParts]] = {}

    def read(self, mask: Tensor | None, crop: Crop, shape: tuple[int, int], *, causal: bool) -> MaskParts:
        """Return what a mask says about the cropped map.

        Args:
            mask: bool (True = may attend) or additive float, [batch or 1, head or 1, query or 1, key].
            crop: which part is looked at.
            shape: (queries, keys) of the whole map.
            causal: whether a key later than the query is forbidden besides.
        """
        if mask is None:
            return MaskParts(causal=causal)
        place = (id(mask), f"{crop} {causal}")
        if place not in self._read:
            self._read[place] = (
                mask,
                _parts(mask, crop, shape, causal=causal),
            )  # the mask is kept: its id stays its own
        return self._read[place][1]


def table_of(table: Tensor, crop: Crop, shape: tuple[int, int]) -> Tensor:
    """Return the cropped [query, key] or [head, query, key] of a [batch or 1, head or 1, query or 1, key] table."""
    four = table.reshape((1,) * (4 - table.dim()) + tuple(table.shape))
    whole = four[min(crop.item, four.shape[0] - 1)].expand(-1, shape[0], -1)[..., : shape[1]]
    part = cells(whole, crop.rows, crop.columns)
    return part[0] if part.shape[0] == 1 or part.stride(0) == 0 else part


def structure(allowed: Tensor) -> MaskParts:
    """Return the plainest rule that allows exactly these cells, bool [query, key] or [head, query, key]."""
    if bool(allowed.all()):
        return MaskParts()
    if allowed.dim() == 3:  # noqa: PLR2004
        if not bool((allowed == allowed[:1]).all()):
            return MaskParts(mask=allowed)
        allowed = allowed[0]
    queries, keys = allowed.shape
    candidate = _band(allowed)
    rule = ScoreRule(scaling=1.0, causal=candidate.causal, window=candidate.window)
    if rule.restricts:
        expected = rule.allowed((queries, keys))
        if expected is not None and torch.equal(expected.to(allowed.device), allowed):
            return candidate
    return MaskParts(mask=allowed)


def _band(allowed: Tensor) -> MaskParts:
    """Return the narrowest band around the diagonal that holds every allowed cell."""
    queries, keys = allowed.shape
    rows = torch.arange(queries, device=allowed.device)
    live = allowed.any(-1)
    marks = allowed.to(torch.uint8)
    first, last = marks.argmax(-1), keys - 1 - marks.flip(-1).argmax(-1)
    back, ahead = ((rows - first)[live], (last - rows)[live])
    if not len(back):
        return MaskParts()
    reach_back, reach_ahead = int(back.max()), int(ahead.max())
    causal = reach_ahead <= 0
    reach = reach_back if causal else max(reach_back, reach_ahead)
    furthest = queries - 1 if causal else max(queries, keys) - 1
    return MaskParts(causal=causal, window=reach + 1 if reach < furthest else None)


def _parts(mask: Tensor, crop: Crop, shape: tuple[int, int], *, causal: bool) -> MaskParts:
    table = table_of(mask, crop, shape)
    bias = None
    if table.dtype == torch.bool:
        allowed = table
    else:
        allowed = table > FORBIDDING
        if bool(torch.any((table != 0) & allowed)):
            bias = table.where(allowed, 0).float()
    if causal:
        allowed = allowed & torch.ones(allowed.shape[-2:], dtype=torch.bool, device=allowed.device).tril()
    plain = structure(allowed)
    return MaskParts(causal=plain.causal, window=plain.window, mask=plain.mask, bias=bias)
