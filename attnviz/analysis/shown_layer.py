"""One layer in a view of a trace: words in place of pieces, or fewer tokens, made when asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import torch
from torch import BoolTensor, Tensor

from attnviz import layers
from attnviz.errors import SupportError
from attnviz.layers import Block, LayerAttention
from attnviz.rules import EVERY, Index, ScoreRule, picked, positions

GAP = 8
"""Rows that are read and not shown, at most, between two that are: cheaper than a block of rows of its own."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Which tokens of a stored axis each shown token stands for: its pieces, one after another or apart.

    Attributes:
        length: how many tokens the stored axis has.
        pieces: int [piece], positions on the stored axis, those of a shown token side by side.
        starts: int [shown], where the pieces of a shown token begin.
        counts: int [shown], how many they are, at least 1.
    """

    length: int
    pieces: Tensor
    starts: Tensor
    counts: Tensor

    @classmethod
    def of(cls, groups: Sequence[Sequence[int]], length: int) -> Groups:
        """Read groups of positions."""
        counts = torch.tensor([len(group) for group in groups])
        pieces = torch.tensor([at for group in groups for at in group])
        return cls(length, pieces, counts.cumsum(0) - counts, counts)

    def __len__(self) -> int:
        return len(self.counts)

    def part(self, index: Index) -> Groups:
        """Return some of the shown tokens, in the order of the index."""
        chosen = positions(index, len(self))
        return replace(self, starts=self.starts[chosen], counts=self.counts[chosen])

    def each_piece(self) -> tuple[Tensor, Tensor]:
        """Return the stored position of every piece and the number of the shown token it is of, both [piece]."""
        owners = torch.arange(len(self)).repeat_interleave(self.counts)
        within = torch.arange(len(owners)) - (self.counts.cumsum(0) - self.counts)[owners]
        return self.pieces[self.starts[owners] + within], owners

    def sum_columns(self, table: Tensor, start: int = 0) -> Tensor:
        """Return the sum over the pieces of each shown token, [..., shown], of [..., stored]; of booleans, any.

        Args:
            table: the stored columns from `start` on; those that are not in it count as 0.
            start: the first stored column of the table.
        """
        pieces, owners = self.each_piece()
        inside = (pieces >= start) & (pieces < start + table.shape[-1])
        pieces, owners = ((one if inside.all() else one[inside]).to(table.device) for one in (pieces - start, owners))
        rows = table.flatten(0, -2)  # index_select is many times faster in a table of two axes
        total = rows.new_zeros(len(rows), len(self)).index_add_(1, owners, rows.index_select(1, pieces))
        return total.unflatten(0, table.shape[:-1])

    def sum_rows(self, read: Callable[[Tensor], Tensor], step: int) -> Tensor:
        """Return the sum over the pieces of each shown token, [..., shown, column]; of booleans, any.

        Args:
            read: gives [..., piece, column] for the stored positions of some pieces.
            step: how many pieces are read at a time.
        """
        pieces, owners = self.each_piece()
        first = read(pieces[:step])
        total = first.new_zeros(*first.shape[:-2], len(self), first.shape[-1])
        for start in range(0, len(pieces), step):
            part = read(pieces[start : start + step]) if start else first
            total.index_add_(-2, owners[start : start + step].to(part.device), part)
        return total

    def mean(self, vectors: Tensor) -> Tensor:
        """Return the mean over the pieces of each shown token, [shown, ...], of [stored, ...]."""
        pieces, owners = self.each_piece()
        total = vectors.new_zeros(len(self), *vectors.shape[1:]).index_add_(0, owners, vectors[pieces])
        return total / self.counts.view(-1, *[1] * (vectors.dim() - 1))


@dataclass(frozen=True, eq=False, kw_only=True)
class ShownRule(ScoreRule):
    """Which cells of a view may be attended: those in which any piece may attend to any piece.

    Attributes:
        base: the stored layer's own rule.
        queries: the rows shown.
        keys: the columns shown.
    """

    base: ScoreRule
    queries: Groups
    keys: Groups

    @property
    def restricts(self) -> bool:
        """Whether any cell may be not allowed."""
        return self.base.restricts

    def columns(self, rows: slice, keys: int) -> slice:
        """Return the span of columns outside which no cell of these rows [start, stop) is allowed."""
        queries, _ = self.queries.part(rows).each_piece()
        reach = self.base.columns(slice(int(queries.min()), int(queries.max()) + 1), self.keys.length)
        pieces, owners = self.keys.each_piece()
        inside = owners[(pieces >= reach.start) & (pieces < reach.stop)]
        return slice(int(inside.min()), int(inside.max()) + 1) if len(inside) else slice(0, 0)

    def of_heads(self, heads: slice) -> ShownRule:
        """Return the rule of some heads only."""
        return replace(self, base=self.base.of_heads(heads), sink=self.sink if self.sink is None else self.sink[heads])

    def allowed(
        self,
        shape: tuple[int, int],
        rows: Index = EVERY,
        columns: Index = EVERY,
        heads: int | slice = EVERY,
        device: torch.device | str | None = None,
    ) -> BoolTensor | None:
        """Return which cells are allowed, as `ScoreRule.allowed` does."""
        if not self.restricts:
            return None
        wanted, stored = self.keys.part(columns), (self.queries.length, self.keys.length)

        def read(pieces: Tensor) -> Tensor:
            return wanted.sum_columns(self.base.allowed(stored, pieces, EVERY, heads, device))  # type: ignore[arg-type]

        return self.queries.part(rows).sum_rows(read, _step(stored[1]))  # type: ignore[return-value]


def _step(keys: int) -> int:
    """Return how many rows of one head are read at a time."""
    return max(16, layers.BLOCK_BYTES // (8 * keys))


@dataclass(frozen=True, eq=False, kw_only=True)
class ShownLayer(LayerAttention):
    """A layer as a view shows it; weights are made of the stored layer's when they are asked for.

    Attributes:
        base: the stored layer.
        queries: the rows shown.
        keys: the columns shown.
        normalise: whether each row is divided by what remains of it.
        threshold: weights below it are 0.
    """

    base: LayerAttention
    queries: Groups
    keys: Groups
    normalise: bool = False
    threshold: float = 0.0

    @property
    def shape(self) -> tuple[int, int, int]:
        """(heads, queries, keys)."""
        return self.base.shape[0], len(self.queries), len(self.keys)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor the stored layer keeps; the view keeps none."""
        return self.base.tensors

    @property
    def group(self) -> int:
        """How many query heads share their keys and values."""
        return self.base.group

    def of_heads(self, heads: slice) -> ShownLayer:
        """Return the layer with some of its heads only, without copies; the slice holds whole groups of heads."""
        return replace(self, base=self.base.of_heads(heads), rule=self.rule.of_heads(heads))

    def weights(self, head: int | slice, rows: Index = EVERY, columns: Index = EVERY) -> Tensor:
        """Return float32 weights [query, key] of a head, or [head, query, key] of a slice of heads."""
        if isinstance(head, slice):
            return torch.stack([self.weights(one, rows, columns) for one in range(*head.indices(self.shape[0]))])
        head, shown = self.checked(head), self.queries.part(rows)
        whole = self.keys if self.normalise else self.keys.part(columns)  # what remains is of the whole row

        def read(pieces: Tensor) -> Tensor:
            return whole.sum_columns(self.base.weights(head, pieces))

        weights = self._finished(shown.sum_rows(read, _step(self.base.shape[2])), shown)
        return picked(weights, columns, 1) if self.normalise else weights

    def block(self, rows: slice) -> Block:
        """Return weights and log-weights of all heads for the rows [start, stop)."""
        shown, columns = self.queries.part(rows), self.rule.columns(rows, self.shape[2])
        reach, lines = self.keys.part(columns), next(self.base.row_blocks())

        def read(pieces: Tensor) -> Tensor:
            return _stored_rows(self.base, pieces, reach)

        weights = self._finished(shown.sum_rows(read, lines.stop - lines.start), shown)
        smallest = torch.finfo(weights.dtype).tiny
        allowed = self.rule.allowed(self.shape[1:], rows, columns, device=weights.device)
        return Block(rows, columns, weights.clamp_min(smallest).log(), weights, allowed)

    def sink_weights(self, head: int) -> Tensor | None:
        """Return the weight [query] each row gives to the attention sink; None without one, or with rows divided."""
        given = None if self.rule.sink is None else self.base.sink_weights(head)
        return None if given is None else self.queries.mean(given)

    def scores(self, head: int, rows: Index = EVERY, columns: Index = EVERY, *, scaled: bool = True) -> Tensor:
        """Raise SupportError: the weights of a view are made of weights."""
        refuse(self, "scores")

    def head_output(self, head: int) -> Tensor:
        """Raise SupportError: the weights of a view are not those that made an output."""
        refuse(self, "outputs")

    def _finished(self, sums: Tensor, shown: Groups) -> Tensor:
        """Return the weights of shown rows from the sums [..., row, column] over their pieces; changes its input."""
        weights = sums.div_(shown.counts[:, None].to(sums))
        if self.normalise:
            remaining = weights.sum(-1, keepdim=True)
            weights.div_(remaining.where(remaining > 0, 1))
        return weights.masked_fill_(weights < self.threshold, 0.0) if self.threshold else weights


def shown_layer(
    layer: LayerAttention, queries: Groups, keys: Groups, *, normalise: bool, threshold: float
) -> ShownLayer:
    """Return a layer with these rows and columns, divided by their sums or cut off below a weight."""
    rule = ShownRule(
        scaling=1.0,
        offset=_offset(queries, keys, layer.rule.offset),
        sink=None if normalise else layer.rule.sink,
        base=layer.rule,
        queries=queries,
        keys=keys,
    )
    return ShownLayer(
        layer=layer.layer,
        role=layer.role,
        rule=rule,
        projection=layer.projection,
        base=layer,
        queries=queries,
        keys=keys,
        normalise=normalise,
        threshold=threshold,
    )


def _offset(queries: Groups, keys: Groups, offset: int) -> int:
    """Return at which column the first row stands, given how far a stored query stands behind its key."""
    pieces, owners = keys.each_piece()
    column = dict(zip(pieces.tolist(), owners.tolist(), strict=True))
    places = enumerate(queries.pieces[queries.starts].tolist())
    return next((column[at + offset] - row for row, at in places if at + offset in column), 0)


def _stored_rows(layer: LayerAttention, pieces: Tensor, columns: Groups) -> Tensor:
    """Return weights [head, piece, shown] of all heads, from blocks of the rows that stand together."""
    steps, parts = pieces.diff(), []
    for run in torch.tensor_split(pieces, (((steps < 1) | (steps > GAP)).nonzero().flatten() + 1).tolist()):
        block = layer.block(slice(int(run[0]), int(run[-1]) + 1))
        weights = block.weights
        if len(run) < weights.shape[1]:
            weights = weights[:, (run - run[0]).to(weights.device)]
        parts.append(columns.sum_columns(weights, block.columns.start))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def refuse(layer: LayerAttention, what: str) -> NoReturn:
    """Raise SupportError: a view has no such thing of a layer."""
    raise SupportError(
        f"A view by words, or without some tokens, has weights alone, so there are no {what} of layer {layer.layer} "
        f"({layer.role}) in it. Turn the view off to see them."
    )
