"""One layer's attention: kept as queries, keys and values, or as weights, and read in parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import BoolTensor, Tensor

from attnviz.errors import OptionError, ShapeError, SupportError
from attnviz.rules import EVERY, Index, ScoreRule, cells, picked

BLOCK_BYTES = 8 << 20
"""Bytes of one block of weights in a pass over all of them: small enough to stay in a processor's cache."""
BLOCK_ROWS = 128
"""Rows of a block where heads are passed over in parts; fewer would make its products slow."""


class Projection(NamedTuple):
    """The matrix W^O that mixes the heads' outputs: weight [d_model, head·d_head], bias [d_model] or None."""

    weight: Tensor
    bias: Tensor | None


class Block(NamedTuple):
    """Some query rows of every head, cropped to the columns in which a cell may be allowed."""

    rows: slice
    columns: slice
    log_weights: Tensor  # [head, rows, columns]; finite in rows with an allowed cell, anything in the others
    weights: Tensor  # [head, rows, columns]; 0 where a cell is not allowed
    allowed: Tensor | None  # bool [rows, columns] or [head, rows, columns]; None when every cell is allowed
    sure: int = 0  # how many columns, from the first, are allowed in every row for certain


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerAttention(ABC):
    """The attention of one layer in one role, in the form every analysis and picture reads.

    Attributes:
        layer: the model's own index of the layer.
        role: "encoder", "decoder" or "cross".
        rule: which cells are allowed and how a score is made.
        projection: the output projection of the module, None where it is not known.
    """

    layer: int
    role: str
    rule: ScoreRule
    projection: Projection | None = None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """(heads, queries, keys)."""

    @abstractmethod
    def weights(self, head: int | slice, rows: Index = EVERY, columns: Index = EVERY) -> Tensor:
        """Return float32 weights [query, key] of a head, or [head, query, key] of a slice of heads."""

    @abstractmethod
    def scores(self, head: int, rows: Index = EVERY, columns: Index = EVERY, *, scaled: bool = True) -> Tensor:
        """Return float32 scores [query, key], before masks; with scaled=False the bare products q·k."""

    @abstractmethod
    def head_output(self, head: int) -> Tensor:
        """Return weights · V of a head, float32 [query, d_head]."""

    @abstractmethod
    def block(self, rows: slice) -> Block:
        """Return weights and log-weights of all heads for the rows [start, stop)."""

    @abstractmethod
    def sink_weights(self, head: int) -> Tensor | None:
        """Return the weight [query] each row gives to the attention sink, None for a layer without one."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor this layer keeps, for counting bytes."""

    @abstractmethod
    def of_heads(self, heads: slice) -> LayerAttention:
        """Return the layer with some of its heads only, without copies; the slice holds whole groups of heads."""

    def parts(self) -> Iterator[LayerAttention]:
        """Yield the layer in parts of so many heads that a block of `BLOCK_ROWS` of their rows is in `BLOCK_BYTES`.

        A layer of some size has at least as many parts as there are cores.
        """
        heads, queries, keys = self.shape
        groups = heads // self.group
        most = max(1, BLOCK_BYTES // (4 * BLOCK_ROWS * keys * self.group))
        if queries * keys * heads * 4 > BLOCK_BYTES:
            most = min(most, -(-groups // torch.get_num_threads()))
        step = most * self.group
        for start in range(0, heads, step):
            yield self if step >= heads else self.of_heads(slice(start, min(start + step, heads)))

    @property
    def group(self) -> int:
        """How many query heads share their keys and values."""
        return 1

    def row_blocks(self) -> Iterator[slice]:
        """Yield the rows [start, stop) of blocks that hold at most about `BLOCK_BYTES` in all heads."""
        heads, queries, keys = self.shape
        step = max(16, min(128, BLOCK_BYTES // (4 * heads * keys)) // 32 * 32)  # products go by 32 rows at a time
        for start in range(0, queries, step):
            yield slice(start, min(start + step, queries))

    def blocks(self) -> Iterator[Block]:
        """Yield the weights of all rows of all heads, block by block."""
        return map(self.block, self.row_blocks())

    def allowed(self, rows: Index = EVERY, columns: Index = EVERY, head: int | None = None) -> BoolTensor:
        """Return bool [query, key]; without `head`, a cell counts as allowed when it is in any head."""
        shape = self.shape[1:]
        heads = EVERY if head is None else self.checked(head)
        allowed: Tensor | None = self.rule.allowed(shape, rows, columns, heads)
        if allowed is None:
            allowed = cells(torch.ones(1, 1, dtype=torch.bool).expand(shape), rows, columns)
        if allowed.dim() == 3:  # noqa: PLR2004
            allowed = allowed.any(0)
        return allowed.to("cpu", copy=True)  # type: ignore[return-value]

    def check_kept(self, numbers: Tensor, name: str) -> None:
        """Raise SupportError where what the model computed is NaN or infinite, or still hangs on a graph."""
        if not bool((numbers < torch.inf).all()):  # NaN is not below infinity either
            dtype = str(self.tensors[0].dtype).removeprefix("torch.")
            raise SupportError(
                f"Expected numbers, got NaN or infinity in the {name} of layer {self.layer} ({self.role}), {dtype}. "
                "Trace it in float32, or without padding."
            )
        if any(tensor.requires_grad for tensor in self.tensors):
            raise SupportError(
                f"Expected layer {self.layer} ({self.role}) without gradients, got a tensor that requires them. "
                "Trace under torch.no_grad() and detach parameters."
            )

    def checked(self, head: int) -> int:
        """Return the head as a non-negative number; OptionError when the layer has no such head."""
        heads = self.shape[0]
        if not -heads <= head < heads:
            raise OptionError(
                f"Layer {self.layer} ({self.role}) has heads 0 to {heads - 1}, got head {head}. Choose one of these."
            )
        return head % heads


@dataclass(frozen=True, eq=False, kw_only=True)
class ComputedLayer(LayerAttention):
    """A layer kept as queries, keys, values and log-sum-exp: any cell is exp(score − logsumexp of its row).

    Attributes:
        query: [head, query, d_head], after rotary embedding where the model has one.
        key: [kv_head, key, d_head]; with grouped queries, head h reads kv_head h // (heads / kv_heads).
        value: [kv_head, key, d_value].
        logsumexp: float32 or float64 [head, query], natural log over the allowed keys (and the sink); -inf in a
            masked row.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    logsumexp: Tensor = field(repr=False)

    def __post_init__(self) -> None:
        """Check every shape against the others, and that the numbers are numbers."""
        heads, queries, width = _three("query", self.query)
        kv_heads, keys, key_width = _three("key", self.key)
        if width != key_width:
            raise ShapeError(f"Expected queries and keys of one width, got {width} and {key_width}.")
        if kv_heads == 0 or heads % kv_heads:
            raise ShapeError(f"Expected the {heads} query heads to be a multiple of the key heads, got {kv_heads}.")
        if tuple(self.value.shape[:2]) != (kv_heads, keys):
            raise ShapeError(f"Expected values [{kv_heads}, {keys}, d_value], got {list(self.value.shape)}.")
        if tuple(self.logsumexp.shape) != (heads, queries):
            raise ShapeError(f"Expected log-sum-exp [{heads}, {queries}], got {list(self.logsumexp.shape)}.")
        self.rule.check(heads, queries, keys)
        self.check_kept(self.logsumexp, "scores")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(heads, queries, keys)."""
        return self.query.shape[0], self.query.shape[1], self.key.shape[1]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor this layer keeps, for counting bytes."""
        kept = (self.query, self.key, self.value, self.logsumexp, self.rule.mask, self.rule.bias, self.rule.sink)
        return tuple(tensor for tensor in kept if tensor is not None)

    @property
    def group(self) -> int:
        """How many query heads share their keys and values."""
        return self.shape[0] // self.key.shape[0]

    def of_heads(self, heads: slice) -> ComputedLayer:
        """Return the layer with some of its heads only, without copies; the slice holds whole groups of heads."""
        shared = slice(heads.start // self.group, -(-heads.stop // self.group))
        return replace(
            self,
            query=self.query[heads],
            key=self.key[shared],
            value=self.value[shared],
            logsumexp=self.logsumexp[heads],
            rule=self.rule.of_heads(heads),
        )

    def key_head(self, head: int) -> int:
        """Return which key-value head this query head reads."""
        return self.checked(head) // self.group

    def scores(self, head: int, rows: Index = EVERY, columns: Index = EVERY, *, scaled: bool = True) -> Tensor:
        """Return float32 scores [query, key], before masks; with scaled=False the bare products q·k."""
        return self._scores(self.checked(head), rows, columns, scaled=scaled).float().cpu()

    def weights(self, head: int | slice, rows: Index = EVERY, columns: Index = EVERY) -> Tensor:
        """Return float32 weights [query, key] of a head, or [head, query, key] of a slice of heads."""
        if isinstance(head, slice):
            return torch.stack([self.weights(one, rows, columns) for one in range(*head.indices(self.shape[0]))])
        return self._weights(self.checked(head), rows, columns).float().cpu()

    def head_output(self, head: int) -> Tensor:
        """Return weights · V of a head, float32 [query, d_head]."""
        head, step = self.checked(head), max(16, BLOCK_BYTES // (4 * self.shape[2]))
        value = self.value[self.key_head(head)].float()
        starts = range(0, self.shape[1], step)
        return torch.cat([self._weights(head, slice(at, at + step), EVERY).float() @ value for at in starts]).cpu()

    def sink_weights(self, head: int) -> Tensor | None:
        """Return the weight [query] each row gives to the attention sink, None for a layer without one."""
        if self.rule.sink is None:
            return None
        head = self.checked(head)
        return torch.exp(self.rule.sink[head].float() - self.logsumexp[head]).cpu()

    def block(self, rows: slice) -> Block:
        """Return weights and log-weights of all heads for the rows [start, stop)."""
        return self._block(rows, None, None)

    def blocks(self) -> Iterator[Block]:
        """Yield all rows of all heads in blocks of at most about `BLOCK_BYTES`; a block is gone when the next comes.

        The blocks share their memory: fetching new memory for each would take longer than the arithmetic.
        """
        heads, _, keys = self.shape
        close = replace(self, query=self.query.float().contiguous(), key=self.key.float().contiguous())
        count = max((rows.stop - rows.start for rows in self.row_blocks()), default=0)
        first, second = (torch.empty(heads * count * keys, device=self.query.device) for _ in range(2))
        for rows in self.row_blocks():
            yield close._block(rows, first, second)

    def _block(self, rows: slice, first: Tensor | None, second: Tensor | None) -> Block:
        """Return a block whose tables lie in the memory given."""
        columns, log_weights, allowed = self._logits(rows, less=self.logsumexp, home=first)
        weights = torch.exp(log_weights, out=_within(second, log_weights.shape))
        sure = self.rule.always_allowed(rows, columns)
        if allowed is not None:
            weights[..., sure:].masked_fill_(~allowed[..., sure:], 0.0)
        return Block(rows, columns, log_weights, weights, allowed, sure)

    def sum_exponentials(self) -> Tensor:
        """Return the log-sum-exp float32 [head, query] that the queries, the keys and the rule give, block by block."""
        out = torch.empty(self.shape[:2], device=self.query.device)
        for rows in self.row_blocks():
            _, logits, allowed = self._logits(rows)
            if allowed is not None:
                logits = logits.masked_fill_(~allowed, -torch.inf)
            if self.rule.sink is not None:
                sink = self.rule.sink.float().to(logits.device)
                sink = sink[:, rows] if sink.dim() == 2 else sink[:, None].expand(-1, logits.shape[1])  # noqa: PLR2004
                logits = torch.cat([logits, sink[..., None]], dim=-1)
            out[:, rows] = logits.logsumexp(-1)
        return out

    def _logits(
        self, rows: slice, less: Tensor | None = None, home: Tensor | None = None
    ) -> tuple[slice, Tensor, Tensor | None]:
        """Return, for the rows [start, stop), the columns in reach, the logits of all heads, and what is allowed.

        `less` [head, query] is taken off each row's logits; the logits lie in the memory `home` where it is given.
        """
        columns = self.rule.columns(rows, self.shape[2])
        taken = self.query.new_zeros(()) if less is None else -less[:, rows]
        if self.rule.softcap is None:  # scaling and subtraction cost nothing inside the product
            logits = self._products(rows, columns, scaling=self.rule.scaling, plus=taken, home=home)
            logits = self.rule.biased(logits, rows, columns, EVERY)
        else:
            logits = self.rule.logits(self._products(rows, columns, home=home), rows, columns, EVERY)
            logits = logits.add_(taken[..., None])
        return columns, logits, self._allowed_in(rows, columns)

    def _products(
        self,
        rows: slice,
        columns: slice,
        *,
        scaling: float = 1.0,
        plus: Tensor | None = None,
        home: Tensor | None = None,
    ) -> Tensor:
        """Return q·k · scaling + plus [head, row] of all heads, [head, row, column]; a group shares one product."""
        kv_heads, _, width = self.key.shape
        heads, count = self.shape[0], rows.stop - rows.start
        query = self.query[:, rows].float().mul(scaling).reshape(kv_heads, heads // kv_heads * count, width)
        key = self.key[:, columns].float().transpose(1, 2)
        added = query.new_zeros(()) if plus is None or not plus.dim() else plus.float().reshape(kv_heads, -1, 1)
        out = _within(home, torch.Size((kv_heads, query.shape[1], key.shape[2])))
        return torch.baddbmm(added, query, key, out=out).view(heads, count, key.shape[2])

    def _weights(self, head: int, rows: Index, columns: Index) -> Tensor:
        """Return weights [query, key] of a head; a part is cut out of whole rows.

        The rows' log-sum-exp is made anew in double precision: the one kept may come from a fast kernel, whose
        approximate exponential is off by up to 2e-5.
        """
        logits = self._scores(head, rows, EVERY)
        allowed = self._allowed(rows, EVERY, head)
        if allowed is not None:
            logits = logits.masked_fill(~allowed, -torch.inf)
        total = logits.logsumexp(-1, keepdim=True)
        if self.rule.sink is not None:
            sink = self.rule.sink[head].to(total)
            total = torch.logaddexp(total, picked(sink, rows, 0)[:, None] if sink.dim() else sink)
        weights = (logits - total).exp().masked_fill(total == -torch.inf, 0.0)
        return picked(weights, columns, 1)

    def _scores(self, head: int, rows: Index, columns: Index, *, scaled: bool = True) -> Tensor:
        """Return the scores [query, key] of a head, on this layer's device, in `precise` numbers.

        A product of float32 matrices is rounded by its shape: a part of large scores would differ from the whole.
        """
        numbers = precise(self.query.device)
        query = picked(self.query[head], rows, 0).to(numbers)
        key = picked(self.key[self.key_head(head)], columns, 0).to(numbers)
        products = query @ key.T  # [query, key]
        return self.rule.logits(products, rows, columns, head) if scaled else products

    def _allowed_in(self, rows: slice, columns: slice) -> Tensor | None:
        """Return which cells of a block are allowed; of a causal one, only its last columns need be worked out."""
        sure = self.rule.always_allowed(rows, columns)
        if not sure:
            return self._allowed(rows, columns, EVERY)
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        allowed = torch.ones(shape, dtype=torch.bool, device=self.query.device)
        unsure = self._allowed(rows, slice(columns.start + sure, columns.stop), EVERY)
        if unsure is not None:
            allowed[:, sure:] = unsure
        return allowed

    def _allowed(self, rows: Index, columns: Index, heads: int | slice) -> Tensor | None:
        """Return which cells are allowed, on this layer's device; None when all are."""
        return self.rule.allowed(self.shape[1:], rows, columns, heads, self.query.device)


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredLayer(LayerAttention):
    """A layer kept as its weights, for models that do not let us at their queries and keys.

    Attributes:
        stored: float [head, query, key], the model's own weights.
        value: [kv_head, key, d_value] where known, None otherwise.
    """

    stored: Tensor
    value: Tensor | None = None

    def __post_init__(self) -> None:
        """Check the shape and the values."""
        _three("weights", self.stored)
        self.rule.check(*self.shape)
        self.check_kept(self.stored, "weights")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(heads, queries, keys)."""
        heads, queries, keys = self.stored.shape
        return heads, queries, keys

    def of_heads(self, heads: slice) -> StoredLayer:
        """Return the layer with some of its heads only, without copies."""
        return replace(self, stored=self.stored[heads], value=None, rule=self.rule.of_heads(heads))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor this layer keeps, for counting bytes."""
        kept = (self.stored, self.value, self.rule.mask, self.rule.bias, self.rule.sink)
        return tuple(tensor for tensor in kept if tensor is not None)

    def weights(self, head: int | slice, rows: Index = EVERY, columns: Index = EVERY) -> Tensor:
        """Return float32 weights [query, key] of a head, or [head, query, key] of a slice of heads."""
        stored = self.stored[head if isinstance(head, slice) else self.checked(head)]
        return cells(stored, rows, columns).to("cpu", torch.float32, copy=True)

    def scores(self, head: int, rows: Index = EVERY, columns: Index = EVERY, *, scaled: bool = True) -> Tensor:
        """Raise SupportError: only the weights of this layer are known."""
        raise SupportError(
            f"Layer {self.layer} ({self.role}) was traced by its weights alone, so its scores are not known. "
            "Look at its weights instead."
        )

    def head_output(self, head: int) -> Tensor:
        """Return weights · V of a head, float32 [query, d_head]; SupportError where V is not known."""
        if self.value is None:
            raise SupportError(
                f"Layer {self.layer} ({self.role}) was traced by its weights alone, so its values are not known. "
                "Look at its weights instead."
            )
        group = self.shape[0] // self.value.shape[0]
        return self.weights(head) @ self.value[self.checked(head) // group].float().cpu()

    def sink_weights(self, head: int) -> Tensor | None:
        """Return None: what a row does not give to keys is not known to be a sink."""
        return None

    def block(self, rows: slice) -> Block:
        """Return weights and log-weights of all heads for the rows [start, stop)."""
        weights = self.stored[:, rows].float()
        smallest = torch.finfo(weights.dtype).tiny
        allowed = self.rule.allowed(self.shape[1:], rows, device=weights.device)
        return Block(rows, slice(0, self.shape[2]), weights.clamp_min(smallest).log(), weights, allowed)


def precise(device: torch.device) -> torch.dtype:
    """Return the widest type of number a device has: float64, but float32 on a Mac's GPU."""
    return torch.float32 if device.type == "mps" else torch.float64


def _within(home: Tensor | None, shape: torch.Size) -> Tensor | None:
    """Return a table of this shape at the start of some memory, None where there is none."""
    return None if home is None else home[: shape.numel()].view(shape)


def _masked_exp(log_weights: Tensor, allowed: Tensor | None) -> Tensor:
    """Return exp(log-weights), 0 where not allowed."""
    weights = log_weights.exp()
    return weights if allowed is None else weights.masked_fill_(~allowed, 0.0)


def _three(name: str, tensor: Tensor) -> tuple[int, int, int]:
    """Return the three sizes of [head, token, width]; ShapeError otherwise, or where there is none of them."""
    if tensor.dim() != 3 or not tensor.numel():  # noqa: PLR2004
        raise ShapeError(
            f"Expected {name} as [head, token, width] with at least one of each, got {list(tensor.shape)}."
        )
    first, second, third = tensor.shape
    return first, second, third
