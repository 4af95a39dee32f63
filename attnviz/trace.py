"""The trace a forward pass leaves: the one contract between what computes attention and what shows it.

A trace keeps what grows with tokens × width (queries, keys, values, log-sum-exp) and computes what grows
with tokens² (scores, weights, statistics) on request, in parts, exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import BoolTensor, Tensor

from attnviz.errors import OptionError, ShapeError, SupportError
from attnviz.layers import ComputedLayer, LayerAttention, StoredLayer
from attnviz.rules import EVERY, Index, ScoreRule
from attnviz.statistics import STATISTICS, summarize
from attnviz.tokens import TokenSequence

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ROLES", "AttentionTrace", "ComputedLayer", "LayerAttention", "ScoreRule", "StoredLayer", "Support"]

ROLES = ("encoder", "decoder", "cross")
THUMBNAIL_SIZE = 32


@dataclass(frozen=True)
class Support:
    """How a trace came about, and how it was checked.

    Attributes:
        how: "module" (an attnviz module), "interface" (a model's attention calls), "fallback" (a model's
            weights) or "none" (nothing to show).
        max_difference: the largest difference found between the trace and what the model computed: its own eager
            weights when it was loaded (`load_model`), the outputs of its attention otherwise (`trace_model`).
        reason: why there is nothing to show, or what is not covered; empty where all is.
    """

    how: str
    max_difference: float | None = None
    reason: str = ""

    @property
    def exact(self) -> bool:
        """Whether every weight shown is the one that was computed."""
        return self.how != "none"

    def __str__(self) -> str:
        """Return the sentence a page shows."""
        words = {
            "module": "exact: computed by the module's own equations",
            "interface": "exact through the attention interface",
            "fallback": "exact through the fallback, which keeps the model's own weights",
            "none": "not shown",
        }[self.how]
        if self.max_difference is not None:
            words += f" (max difference from the model's own numbers {self.max_difference:.1e})"
        return f"{words}: {self.reason}" if self.reason else words


class AttentionTrace:
    """Every head of one forward pass over one text, or over a pair of sequences.

    Where a method takes `role`, it may be left out when the trace has one role. Layers go by the model's own
    numbers, heads from 0. `rows` (queries) and `columns` (keys) are slices or lists of positions.
    """

    def __init__(
        self,
        layers: Iterable[LayerAttention],
        *,
        query_tokens: Mapping[str, TokenSequence],
        key_tokens: Mapping[str, TokenSequence],
        inputs: Tensor | None = None,
        outputs: Tensor | None = None,
        key_inputs: Tensor | None = None,
        hidden_states: Mapping[str, Sequence[Tensor]] | None = None,
        support: Support,
        name: str = "",
        notices: Sequence[str] = (),
    ) -> None:
        """Keep the layers and check them against the tokens.

        Args:
            layers: the layers that attend, in any order.
            query_tokens: per role, the tokens that attend (rows).
            key_tokens: per role, the tokens attended to (columns).
            inputs: vectors into the traced stack, [query token, d_model]; kept as float32 on the CPU, like the next.
            outputs: vectors out of the traced stack, [query token, d_model].
            key_inputs: for cross-attention, the vectors attended to, [key token, d_model].
            hidden_states: per role, what enters the first layer and what leaves each layer, [query token, d_model].
            support: how the trace came about.
            name: what was traced, for titles.
            notices: what a person should know about this trace, a sentence each (a text that was shortened).

        Raises:
            ShapeError: a layer does not fit its tokens, or two layers claim one place.
            OptionError: a layer has another role than "encoder", "decoder" or "cross".
        """
        self.inputs, self.outputs, self.key_inputs = map(_plain, (inputs, outputs, key_inputs))
        self.support = support
        self.name = name
        self.notices = tuple(notices)
        self._query_tokens, self._key_tokens = dict(query_tokens), dict(key_tokens)
        self._layers: dict[tuple[str, int], LayerAttention] = {}
        self._hidden_states: dict[str, tuple[Tensor, ...]] = {}
        for role, states in (hidden_states or {}).items():
            self._add_states(role, states)
        for layer in layers:
            self._add(layer)
        self._layers = dict(sorted(self._layers.items(), key=lambda item: (ROLES.index(item[0][0]), item[0][1])))
        self._summaries: dict[tuple[str, int, int], tuple[Tensor, Tensor]] = {}
        self._lock = threading.Lock()

    def _add(self, layer: LayerAttention) -> None:
        place = (layer.role, layer.layer)
        if layer.role not in ROLES:
            raise OptionError(f"Expected a role of {list(ROLES)}, got {layer.role!r} for layer {layer.layer}.")
        if place in self._layers:
            raise ShapeError(f"Expected one {layer.role} layer {layer.layer}, got two. Give each its own number.")
        if layer.role not in self._query_tokens or layer.role not in self._key_tokens:
            raise ShapeError(f"Expected tokens for the role {layer.role!r}, got {sorted(self._query_tokens)}.")
        expected = (len(self._query_tokens[layer.role]), len(self._key_tokens[layer.role]))
        if layer.shape[1:] != expected:
            raise ShapeError(
                f"Expected [query, key] = {list(expected)} from the tokens, "
                f"got {list(layer.shape[1:])} from {layer.role} layer {layer.layer}."
            )
        self._layers[place] = layer

    def _add_states(self, role: str, states: Sequence[Tensor]) -> None:
        kept = [state.detach().float().cpu() for state in states]
        tokens, lengths = self._query_tokens.get(role, ()), sorted({len(state) for state in kept})
        if lengths not in ([], [len(tokens)]):
            raise ShapeError(f"Expected vectors of {len(tokens)} {role} tokens, got {lengths} in hidden_states.")
        self._hidden_states[role] = tuple(kept)

    def __repr__(self) -> str:
        """Return the shape in a line."""
        parts = ", ".join(f"{role}: {len(self.layers(role))} layers" for role in self.roles) or "no attention"
        return f"AttentionTrace({self.name!r}, {parts}, {self.nbytes:,} bytes)"

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that have layers, of "encoder", "decoder", "cross"."""
        present = {role for role, _ in self._layers}
        return tuple(role for role in ROLES if role in present)

    @property
    def nbytes(self) -> int:
        """Bytes kept, each storage counted once however many layers share it."""
        tensors = [tensor for layer in self._layers.values() for tensor in layer.tensors]
        tensors += [tensor for tensor in (self.inputs, self.outputs, self.key_inputs) if tensor is not None]
        tensors += [tensor for states in self._hidden_states.values() for tensor in states]
        storages = [tensor.untyped_storage() for tensor in tensors]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def role(self, role: str | None = None) -> str:
        """Return the role asked for, or the only one; OptionError where it is absent or must be chosen."""
        if role is None and len(self.roles) == 1:
            return self.roles[0]
        if not self.roles:
            raise SupportError(f"Expected attention to look at, got a trace without any: {self.support}.")
        if role not in self.roles:
            got = "none given" if role is None else repr(role)
            raise OptionError(f"Expected a role of {list(self.roles)}, got {got}. Pass role=.")
        return role

    def layers(self, role: str | None = None) -> tuple[int, ...]:
        """Return the numbers of the layers that attend in a role, rising; they may have gaps."""
        role = self.role(role)
        return tuple(number for at, number in self._layers if at == role)

    def layer(self, layer: int, role: str | None = None) -> LayerAttention:
        """Return a layer with its queries, keys, values, rule and projection."""
        role = self.role(role)
        if (role, layer) not in self._layers:
            raise OptionError(
                f"Expected a {role} layer of {list(self.layers(role))}, got {layer}. Choose one of these."
            )
        return self._layers[role, layer]

    def heads(self, layer: int, role: str | None = None) -> int:
        """Return the number of query heads of a layer."""
        return self.layer(layer, role).shape[0]

    def query_tokens(self, role: str | None = None) -> TokenSequence:
        """Return the tokens that attend: the rows of every map."""
        return self._query_tokens[self.role(role)]

    def key_tokens(self, role: str | None = None) -> TokenSequence:
        """Return the tokens attended to: the columns of every map."""
        return self._key_tokens[self.role(role)]

    def hidden_states(self, role: str | None = None) -> tuple[Tensor, ...]:
        """Return the vectors between the layers of a role's stack, float32 [query token, d_model] each.

        The first is what enters the first layer, the next what leaves it, and so on for all layers of the stack, those
        without attention among them: layer number n gives out `hidden_states()[n + 1]`. The last is before the final
        norm, where `outputs` are after it. Of a module they are its inputs and its outputs. Empty where they were not
        kept; `notices` say why.
        """
        role = self.role(role)
        if self.support.how == "module" and self.inputs is not None and self.outputs is not None:
            return (self.inputs, self.outputs)
        return self._hidden_states.get(role, ())

    def queries(self, layer: int, head: int, role: str | None = None) -> Tensor:
        """Return Q of a head, float32 [query, d_head], after rotary embedding where the model has one."""
        place = self._computed(layer, role)
        return place.query[place.checked(head)].to("cpu", torch.float32, copy=True)

    def keys(self, layer: int, head: int, role: str | None = None) -> Tensor:
        """Return the K that a head reads, float32 [key, d_head]."""
        place = self._computed(layer, role)
        return place.key[place.key_head(head)].to("cpu", torch.float32, copy=True)

    def values(self, layer: int, head: int, role: str | None = None) -> Tensor:
        """Return the V that a head reads, float32 [key, d_head]."""
        place = self._computed(layer, role)
        return place.value[place.key_head(head)].to("cpu", torch.float32, copy=True)

    def scores(
        self,
        layer: int,
        head: int,
        role: str | None = None,
        rows: Index = EVERY,
        columns: Index = EVERY,
        *,
        scaled: bool = True,
    ) -> Tensor:
        """Return QKᵀ·scaling (with soft-cap and bias, before masks), float32 [query, key].

        Args:
            layer: the layer's number.
            head: the head's number.
            role: the role, where there is more than one.
            rows: which queries.
            columns: which keys.
            scaled: False for the bare products QKᵀ, before scaling, soft-cap and bias.
        """
        return self.layer(layer, role).scores(head, rows, columns, scaled=scaled)

    def weights(
        self, layer: int, head: int, role: str | None = None, rows: Index = EVERY, columns: Index = EVERY
    ) -> Tensor:
        """Return the attention weights, float32 [query, key] in 0 to 1.

        A whole row sums to 1, to less where the layer has an attention sink, and to 0 where every key is masked.
        A part equals the same part of the whole.
        """
        layer_attention = self.layer(layer, role)
        return layer_attention.weights(layer_attention.checked(head), rows, columns)

    def allowed(self, layer: int, role: str | None = None, *, head: int | None = None) -> BoolTensor:
        """Return which cells may be attended, bool [query, key].

        Where a mask differs between heads, pass `head`; without it a cell counts when any head may attend to it.
        """
        return self.layer(layer, role).allowed(head=head)

    def sink_weights(self, layer: int, head: int, role: str | None = None) -> Tensor | None:
        """Return what each row gives to the attention sink, float32 [query]; None for a layer without one."""
        return self.layer(layer, role).sink_weights(head)

    def head_output(self, layer: int, head: int, role: str | None = None) -> Tensor:
        """Return weights · V of a head, float32 [query, d_head]."""
        return self.layer(layer, role).head_output(head)

    def concatenated(self, layer: int, role: str | None = None) -> Tensor:
        """Return the heads' outputs side by side, float32 [query, head·d_head], as they enter W^O."""
        return torch.cat([self.head_output(layer, head, role) for head in range(self.heads(layer, role))], dim=-1)

    @torch.no_grad()
    def projected(self, layer: int, role: str | None = None) -> Tensor:
        """Return the concatenation through the layer's output projection W^O, float32 [query, d_model].

        A layer without a projection (the article's single-head modules) gives the concatenation itself.
        """
        concatenated, projection = self.concatenated(layer, role), self.layer(layer, role).projection
        if projection is None:
            return concatenated
        bias = None if projection.bias is None else projection.bias.float().cpu()
        return torch.nn.functional.linear(concatenated, projection.weight.float().cpu(), bias)

    def statistics(self, role: str | None = None) -> pd.DataFrame:
        """Return one row per head: layer, head and the columns defined at `attnviz.statistics.DEFINITIONS`.

        entropy in nats, distance in tokens, the others weights of 0 to 1; NaN where a term has no meaning.
        """
        import pandas as pd

        role = self.role(role)
        tables = []
        for number in self.layers(role):
            table = pd.DataFrame(self._summary(number, role)[0].numpy().copy(), columns=list(STATISTICS))
            table.insert(0, "layer", number)
            table.insert(1, "head", range(len(table)))
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    def thumbnails(self, role: str | None = None, size: int = THUMBNAIL_SIZE) -> Tensor:
        """Return a small picture of every head, uint8 [layer, head, size, size], 255 = weight 1.

        A pixel is the largest weight under it (see `attnviz.statistics.summarize`). Where layers have different
        numbers of heads, the missing ones are 0.
        """
        role = self.role(role)
        pictures = [self._summary(number, role, size)[1] for number in self.layers(role)]
        heads = max(picture.shape[0] for picture in pictures)
        out = torch.zeros(len(pictures), heads, size, size, dtype=torch.uint8)
        for at, picture in enumerate(pictures):
            out[at, : picture.shape[0]] = (picture.clamp(0, 1) * 255).round().to(torch.uint8)
        return out

    def allowed_thumbnails(self, role: str | None = None, size: int = THUMBNAIL_SIZE) -> Tensor:
        """Return where each layer may attend, uint8 [layer, size, size]: 1 where the cell amid a pixel is allowed."""
        role = self.role(role)
        counts = (len(self._query_tokens[role]), len(self._key_tokens[role]))
        rows, columns = (((torch.arange(size) + 0.5) * count / size).long().tolist() for count in counts)
        return torch.stack([self._layers[role, at].allowed(rows, columns) for at in self.layers(role)]).to(torch.uint8)

    def _summary(self, layer: int, role: str, size: int = THUMBNAIL_SIZE) -> tuple[Tensor, Tensor]:
        """Return statistics and thumbnails of a layer, made once; larger ones than the usual are not kept."""
        if size > THUMBNAIL_SIZE:
            return self._summarize(layer, role, size)
        with self._lock:
            if (role, layer, size) not in self._summaries:
                self._summaries[role, layer, size] = self._summarize(layer, role, size)
            return self._summaries[role, layer, size]

    def _summarize(self, layer: int, role: str, size: int) -> tuple[Tensor, Tensor]:
        special = torch.tensor(self._key_tokens[role].is_special, dtype=torch.bool)
        return summarize(self._layers[role, layer], special=special, size=size)

    def _computed(self, layer: int, role: str | None) -> ComputedLayer:
        place = self.layer(layer, role)
        if isinstance(place, ComputedLayer):
            return place
        raise SupportError(
            f"Layer {layer} was traced by its weights alone, so its queries, keys and values are not known. "
            "Look at its weights instead."
        )


def _plain(vectors: Tensor | None) -> Tensor | None:
    """Return vectors as everything a trace gives: float32, on the CPU, without a graph."""
    return None if vectors is None else vectors.detach().float().cpu()
