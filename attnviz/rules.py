"""Which keys a query may attend to, and what happens to a score before the softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import isfinite

import torch
from torch import BoolTensor, Tensor

from attnviz.errors import MaskError, OptionError

Index = slice | Sequence[int] | Tensor
EVERY = slice(None)


def positions(index: Index, length: int, device: torch.device | str | None = None) -> Tensor:
    """Return the positions [n] that an index picks out of `length`, as Python and NumPy count them.

    Args:
        index: a slice, with any step; or integers, negative ones counted from the end; or booleans, one each.
        length: how many there are to pick from.
        device: where the positions are to be.

    Raises:
        OptionError: an integer is outside the length, or there are not `length` booleans.
    """
    if isinstance(index, slice):
        chosen = range(length)[index]
        return torch.arange(chosen.start, chosen.start + len(chosen) * chosen.step, chosen.step, device=device)
    wanted = torch.as_tensor(index, device=device)
    if wanted.dtype == torch.bool:
        if len(wanted) != length:
            raise OptionError(f"Expected {length} booleans, one per position, got {len(wanted)}.")
        return wanted.nonzero().flatten()
    wanted = wanted.long().reshape(-1)
    if len(wanted) and not (-length <= int(wanted.min()) and int(wanted.max()) < length):
        raise OptionError(f"Expected positions of 0 to {length - 1}, got {int(wanted.min())} to {int(wanted.max())}.")
    return wanted % length


def picked(table: Tensor, index: Index, dim: int) -> Tensor:
    """Return the part of a table that an index picks along one axis; a view where it is a rising slice."""
    if isinstance(index, slice) and (index.step is None or index.step > 0):
        return table[(EVERY,) * (dim % table.dim()) + (index,)]
    return table.index_select(dim, positions(index, table.shape[dim], table.device))


def cells(table: Tensor, rows: Index, columns: Index) -> Tensor:
    """Return the part of a table [..., query, key] that rows and columns pick; a view where both are rising slices."""
    return picked(picked(table, rows, -2), columns, -1)


@dataclass(frozen=True, eq=False)
class ScoreRule:
    """What turns the product q·k into the logit the softmax sees.

    The logit of an allowed cell is `softcap(q·k · scaling) + bias`; a cell that is not allowed has none.
    A query at row i stands at key position i + offset.

    Attributes:
        scaling: factor on q·k; 1/sqrt(d_head) in the paper (Vaswani et al. 2017, section 3.2.1).
        causal: a key later than the query is not allowed.
        offset: key position of the first query; above 0 when earlier rows were computed before (a cache).
        window: a key `window` or more positions away from the query is not allowed; None for no window.
        mask: bool [query, key] or [head or 1, query, key], True = may attend; None for no further mask.
        bias: finite float [query, key] or [head or 1, query, key], added after scaling and soft-cap; what forbids
            a cell belongs in the mask.
        softcap: scores become softcap·tanh(score / softcap) (Gemma 2); None for none.
        sink: float [head] or [head, query], one more logit in each row's softmax that has no key (GPT-OSS; Inkling);
            None for none.
    """

    scaling: float
    causal: bool = False
    offset: int = 0
    window: int | None = None
    mask: Tensor | None = None
    bias: Tensor | None = None
    softcap: float | None = None
    sink: Tensor | None = None

    def check(self, heads: int, queries: int, keys: int) -> None:
        """Raise MaskError where mask, bias or sink do not fit [heads, queries, keys], or the bias is not finite."""
        if self.mask is not None and self.mask.dtype != torch.bool:
            raise MaskError(f"Expected a boolean mask (True = may attend), got {self.mask.dtype}. Use mask.bool().")
        for name, table in (("mask", self.mask), ("bias", self.bias)):
            if table is not None:
                _check_table(name, table, heads, queries, keys)
        if self.bias is not None:
            lowest, highest = (float(end) for end in self.bias.aminmax())
            if not (isfinite(lowest) and isfinite(highest)):
                raise MaskError(f"Expected a finite bias, got {lowest} to {highest}. Forbid cells by the mask instead.")
        if self.sink is not None and tuple(self.sink.shape) not in {(heads,), (heads, queries)}:
            raise MaskError(
                f"Expected one sink logit per head, [{heads}], or per head and query, [{heads}, {queries}], "
                f"got shape {tuple(self.sink.shape)}."
            )

    def of_heads(self, heads: slice) -> ScoreRule:
        """Return the rule of some heads only."""
        mask, bias, sink = self.mask, self.bias, self.sink
        return replace(
            self,
            mask=mask if mask is None else _of_heads(mask, heads),
            bias=bias if bias is None else _of_heads(bias, heads),
            sink=sink if sink is None else sink[heads],
        )

    @property
    def restricts(self) -> bool:
        """Whether any cell may be not allowed."""
        return self.causal or self.window is not None or self.mask is not None

    def columns(self, rows: slice, keys: int) -> slice:
        """Return the span of columns outside which no cell of these rows [start, stop) is allowed."""
        first, last = rows.start + self.offset, rows.stop - 1 + self.offset
        start = 0 if self.window is None else max(0, first - self.window + 1)
        after = keys if self.window is None else last + self.window
        stop = last + 1 if self.causal else after
        return slice(min(start, keys), max(0, min(stop, keys)))

    def always_allowed(self, rows: slice, columns: slice) -> int:
        """Return how many of the columns, from the first, are allowed in every one of these rows for certain."""
        if not self.causal or self.window is not None or self.mask is not None:
            return 0
        return max(0, min(rows.start + self.offset + 1, columns.stop) - columns.start)

    def allowed(
        self,
        shape: tuple[int, int],
        rows: Index = EVERY,
        columns: Index = EVERY,
        heads: int | slice = EVERY,
        device: torch.device | str | None = None,
    ) -> BoolTensor | None:
        """Return which cells are allowed, or None when all are.

        Args:
            shape: (queries, keys) of the whole map.
            rows: which query rows.
            columns: which key columns.
            heads: which heads of a mask that differs between heads.
            device: where the result is to be; the mask's own device where left out.

        Returns:
            bool [query, key], or [head, query, key] where the mask differs between the heads asked for.
        """
        if self.mask is not None and device is None:
            device = self.mask.device
        here = positions(rows, shape[0], device)[:, None] + self.offset
        there = positions(columns, shape[1], device)[None, :]
        conditions = []
        if self.mask is not None:
            conditions.append(cells(_of_heads(self.mask, heads), rows, columns).to(device))
        if self.causal:
            conditions.append(there <= here)
        if self.window is not None:
            conditions += [there > here - self.window, there < here + self.window]
        return reduce(torch.logical_and, conditions) if conditions else None  # type: ignore[return-value]

    def logits(self, products: Tensor, rows: Index, columns: Index, heads: int | slice) -> Tensor:
        """Return scaled, soft-capped and biased scores from the products q·k [..., query, key]; changes its input."""
        scores = products.mul_(self.scaling)
        if self.softcap is not None:
            scores = scores.div_(self.softcap).tanh_().mul_(self.softcap)
        return self.biased(scores, rows, columns, heads)

    def biased(self, scores: Tensor, rows: Index, columns: Index, heads: int | slice) -> Tensor:
        """Return scores [..., query, key] with the bias added; changes its input."""
        if self.bias is None:
            return scores
        return scores.add_(cells(_of_heads(self.bias, heads), rows, columns).to(scores))


def _of_heads(table: Tensor, heads: int | slice) -> Tensor:
    """Return the part of a [query, key] or [head or 1, query, key] table that these heads see."""
    if table.dim() == 2:  # noqa: PLR2004
        return table
    if table.shape[0] == 1:
        return table[0]
    return table[heads]


def _check_table(name: str, table: Tensor, heads: int, queries: int, keys: int) -> None:
    """Raise MaskError unless the table is [queries, keys] or [heads or 1, queries, keys]."""
    fits = tuple(table.shape) in {(queries, keys), (1, queries, keys), (heads, queries, keys)}
    if not fits:
        raise MaskError(
            f"Expected a {name} of shape [query, key] = [{queries}, {keys}] "
            f"or [head, query, key] = [{heads}, {queries}, {keys}], got {list(table.shape)}."
        )
