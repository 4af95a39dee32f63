"""A trace seen by words, without some tokens, or with rows divided anew: a view that leaves the trace as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn

import torch
from torch import BoolTensor, Tensor

from attnviz import layers
from attnviz.errors import OptionError, SupportError
from attnviz.layers import Block, LayerAttention
from attnviz.rules import EVERY, Index, ScoreRule, picked, positions
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace

GAP = 8
"""Rows that are read and not shown, at most, between two that are: cheaper than a block of rows of its own."""


@dataclass(frozen=True)
class ShownOptions:
    """What is shown of a trace; with all as they are here, the trace itself.

    What is on is done in this order.

    Attributes:
        words: one row and column per word of the tokenizer: the sum over the pieces attended to, the mean over the
            pieces that attend. Special tokens stay alone.
        hide_special: leave out special tokens, as rows and as columns.
        hide_punctuation: leave out what is nothing but punctuation (`TokenSequence.is_punctuation`).
        hide_first: leave out the first query and the first key, on which many heads rest what they do not need; with
            `words`, the words that hold them.
        normalise: divide each row by what remains of it, so that it sums to 1; rows of 0 stay 0.
        threshold: weights below it become 0; 0 to 1.

    Raises:
        OptionError: the threshold is outside 0 to 1.
    """

    words: bool = False
    hide_special: bool = False
    hide_punctuation: bool = False
    hide_first: bool = False
    normalise: bool = False
    threshold: float = 0.0

    def __post_init__(self) -> None:
        """Check the threshold."""
        if not 0 <= self.threshold <= 1:
            raise OptionError(f"Expected a threshold of 0 to 1, got {self.threshold}.")

    @property
    def hidden(self) -> str:
        """What is hidden, in words: "special tokens and punctuation"; empty where nothing is."""
        kinds = ("the first token", "special tokens", "punctuation")
        chosen = (self.hide_first, self.hide_special, self.hide_punctuation)
        *most, last = [kind for kind, hides in zip(kinds, chosen, strict=True) if hides] or [""]
        return f"{', '.join(most)} and {last}" if most else last


def show(trace: AttentionTrace, options: ShownOptions) -> AttentionTrace:
    """Return a view of a trace, which every page, picture and statistic reads like any other trace.

    Args:
        trace: what was traced; it is read on request and never changed.
        options: what is shown of it.

    Returns:
        A `ShownTrace`, or the trace itself where no option is on.

    Raises:
        OptionError: nothing would be left of a role's rows or columns.
    """
    return trace if options == ShownOptions() else ShownTrace(trace, options)


def words_said(options: ShownOptions, has_sink: bool) -> str:
    """Return plain sentences on what a view shows; empty where it shows the trace itself.

    Args:
        options: what is shown.
        has_sink: whether the layer has an attention sink, a part of each row that goes to no key.
    """
    said = []
    if options.words:
        said.append("Words: sum over the pieces attended to, mean over the pieces that attend.")
    hiding = f"{options.hidden[:1].upper()}{options.hidden[1:]} {_verb(options)} hidden" if options.hidden else ""
    sums = "a row and its sink no longer sum to 1" if has_sink and not options.normalise else "rows no longer sum to 1"
    if options.normalise:
        divisor = f"what remains{' without the sink' if has_sink else ''}" if hiding or has_sink else "its sum"
        said.append(f"{hiding + ', and each' if hiding else 'Each'} row is divided by {divisor}.")
    elif hiding:
        said.append(f"{hiding}, so {sums}.")
    if options.threshold:
        ending = "" if hiding and not options.normalise else f", so {sums}"  # said once
        said.append(f"Weights below {options.threshold:g} are shown as 0{ending}.")
    return " ".join(said)


def _verb(options: ShownOptions) -> str:
    """Return "is" or "are", as what is hidden wants it."""
    several = options.hide_special or options.hide_first + options.hide_punctuation > 1
    return "are" if several else "is"


class ShownTrace(AttentionTrace):
    """A view of a trace. It keeps no weights of its own: each request reads the rows it needs of the stored layers.

    Vectors go with the tokens: `inputs`, `outputs` and `key_inputs` are those of the shown tokens, of a word the mean
    over its pieces.

    Attributes:
        base: the trace that is seen.
        options: what is shown of it.
    """

    def __init__(self, base: AttentionTrace, options: ShownOptions) -> None:
        """See a trace through the options; OptionError where nothing would be left of a role's rows or columns."""
        self.base, self.options = base, options
        known: dict[int, _Side] = {}  # the same tokens stay the same

        def side(tokens: TokenSequence, role: str) -> _Side:
            if id(tokens) not in known:
                known[id(tokens)] = _side(tokens, options, role)
            return known[id(tokens)]

        queries = {role: side(base.query_tokens(role), role) for role in base.roles}
        keys = {role: side(base.key_tokens(role), role) for role in base.roles}
        of_vectors = next((queries[role] for role in ("decoder", "encoder", "cross") if role in queries), None)
        super().__init__(
            [
                _shown_layer(base.layer(number, role), queries[role].groups, keys[role].groups, options)
                for role in base.roles
                for number in base.layers(role)
            ],
            query_tokens={role: one.tokens for role, one in queries.items()},
            key_tokens={role: one.tokens for role, one in keys.items()},
            inputs=_vectors(base.inputs, of_vectors),
            outputs=_vectors(base.outputs, of_vectors),
            key_inputs=_vectors(base.key_inputs, keys.get("cross")),
            hidden_states={role: _states(base, role, queries[role]) for role in base.roles},
            support=base.support,
            name=base.name,
            notices=base.notices,
        )

    def _computed(self, layer: int, role: str | None) -> NoReturn:
        _refuse(self.layer(layer, role), "queries, keys and values")


def _refuse(layer: LayerAttention, what: str) -> NoReturn:
    raise SupportError(
        f"A view by words, or without some tokens, has weights alone, so there are no {what} of layer {layer.layer} "
        f"({layer.role}) in it. Turn the view off to see them."
    )


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


class _Side(NamedTuple):
    """One axis of a view."""

    groups: Groups
    tokens: TokenSequence


def _side(tokens: TokenSequence, options: ShownOptions, role: str) -> _Side:
    """Return what is shown of an axis; OptionError where that is nothing."""
    groups = tokens.by_words() if options.words else tuple((at,) for at in range(len(tokens)))
    named = tokens.merged(groups) if options.words else tokens
    hidden = [
        (options.hide_special and special) or (options.hide_punctuation and mark) or (options.hide_first and 0 in group)
        for group, special, mark in zip(groups, named.is_special, named.is_punctuation, strict=True)
    ]
    kept = [group for group, hides in zip(groups, hidden, strict=True) if not hides]
    if not kept:
        raise OptionError(
            f"Without {options.hidden} there is no token left to show ({role}, {len(tokens)} tokens). "
            "Show some of them again."
        )
    shown = tokens.merged(kept) if options.words else tokens.select([at for group in kept for at in group])
    return _Side(Groups.of(kept, len(tokens)), shown)


def _states(base: AttentionTrace, role: str, side: _Side) -> list[Tensor]:
    """Return the vectors between the layers of the tokens that are shown."""
    states = (_vectors(state, side) for state in base.hidden_states(role))
    return [state for state in states if state is not None]


def _vectors(vectors: Tensor | None, side: _Side | None) -> Tensor | None:
    """Return the vectors of the shown tokens; None where they do not go with these tokens."""
    if vectors is None or side is None or len(vectors) != side.groups.length:
        return None
    return side.groups.mean(vectors)


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
        _refuse(self, "scores")

    def head_output(self, head: int) -> Tensor:
        """Raise SupportError: the weights of a view are not those that made an output."""
        _refuse(self, "outputs")

    def _finished(self, sums: Tensor, shown: Groups) -> Tensor:
        """Return the weights of shown rows from the sums [..., row, column] over their pieces; changes its input."""
        weights = sums.div_(shown.counts[:, None].to(sums))
        if self.normalise:
            remaining = weights.sum(-1, keepdim=True)
            weights.div_(remaining.where(remaining > 0, 1))
        return weights.masked_fill_(weights < self.threshold, 0.0) if self.threshold else weights


def _shown_layer(layer: LayerAttention, queries: Groups, keys: Groups, options: ShownOptions) -> ShownLayer:
    """Return a layer as the options show it."""
    rule = ShownRule(
        scaling=1.0,
        offset=_offset(queries, keys, layer.rule.offset),
        sink=None if options.normalise else layer.rule.sink,
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
        normalise=options.normalise,
        threshold=options.threshold,
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
