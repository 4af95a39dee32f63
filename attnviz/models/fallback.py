"""The fallback for models off the attention interface: it keeps the weights their softmax gives, as they are used.

While the model runs, every call of `softmax` made by an attention module is seen, and so are the arguments of PyTorch's
own attention function, from which queries, keys and values are kept as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnviz.errors import SupportError
from attnviz.layers import StoredLayer
from attnviz.models.calls import AttentionCall
from attnviz.models.capture import Collector, Recorded, with_logsumexp
from attnviz.models.masks import Crop, structure
from attnviz.models.places import Place
from attnviz.models.running import run_listening
from attnviz.models.sequences import Sequences
from attnviz.models.support import run_difference, shortened
from attnviz.models.vectors import StackVectors
from attnviz.rules import ScoreRule, cells

BUDGET = 2 << 30
"""Bytes of weights kept at most, unless more are allowed."""
SOFTMAX = (torch.softmax, torch.nn.functional.softmax, Tensor.softmax)
UNREACHABLE = 1000.0
"""A weight that is exactly 0 under a score this far below its row's largest was masked: no trained score is."""


@dataclass
class WeightRun:
    """What a run through the fallback left; `difference` is that of the check on a short probe."""

    collector: WeightCollector
    vectors: StackVectors
    output: Any
    difference: float | None


@dataclass(frozen=True)
class Probed:
    """What a short run told about a model: how many layers the fallback sees, and how well they fit."""

    layers: int
    difference: float | None


_PROBED: WeakKeyDictionary[nn.Module, Probed] = WeakKeyDictionary()


class WeightCollector(Collector):
    """Keeps the weights of one run, at most `budget` bytes of them."""

    def __init__(
        self, model: nn.Module, sequences: Sequences, *, expected: int | None, budget: int, **rest: Any
    ) -> None:
        """Be ready for a run that is expected to show so many layers."""
        super().__init__(model, sequences, **rest)
        self._expected = expected
        self._budget = budget
        self._bytes = 0
        self._tables: list[Tensor] = []  # masks, kept once however many layers share them

    def attend(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of the interface; its softmax is seen like any other."""
        return function(*args, **kwargs)

    def keep_weights(self, module: nn.Module, scores: Tensor, weights: Tensor) -> None:
        """Keep the item's weights of a [batch, head, query, key] or [batch·head, query, key] softmax."""
        place = self.places.of(module)
        if not self.wants(place):
            return
        batch = self.sequences.batch or 1
        if weights.dim() == 3:  # noqa: PLR2004
            if weights.shape[0] % batch:
                return
            scores, weights = (table.unflatten(0, (batch, -1)) for table in (scores, weights))
        in_chunks = weights.shape[-2] != weights.shape[-1] and not place.crosses
        if weights.shape[0] not in (1, batch) or in_chunks:
            self.failures[place.stack] = SupportError(
                f"{place.path} attends in pieces {list(weights.shape)}, not over one sequence, "
                "so it has no [query, key] map to show."
            )
            return
        self._keep(place, module, scores, weights)

    def _keep(self, place: Place, module: nn.Module, scores: Tensor, weights: Tensor) -> None:
        axes = self.sequences.axes(place, weights.shape[-1])
        shape = (weights.shape[-2], weights.shape[-1])
        item = min(self.sequences.item, weights.shape[0] - 1)
        crop = Crop(item, axes[0].cut(shape[0]), axes[1].cut(shape[1]))
        role = "cross" if place.crosses or shape[0] != shape[1] else self._own_role(place)
        self._count(weights[item])
        part, logits = (cells(table[item], crop.rows, crop.columns) for table in (weights, scores))
        rule = self._rule(part, logits)
        if role == "encoder" and not place.in_encoder and (rule.causal or _is_lone_decoder(part, module)):
            role = "decoder"
        layer = StoredLayer(layer=place.layer, role=role, rule=rule, stored=part.detach().clone())
        self.recorded.append(Recorded(place, layer, axes, crop, shape))

    def _own_role(self, place: Place) -> str:
        return "decoder" if self.sequences.is_encoder_decoder and not place.in_encoder else "encoder"

    def _rule(self, weights: Tensor, logits: Tensor) -> ScoreRule:
        """Return which cells a softmax could give weight to."""
        far = logits < logits.amax(-1, keepdim=True) - UNREACHABLE
        parts = structure(~(far & (weights == 0)))
        return ScoreRule(scaling=1.0, causal=parts.causal, window=parts.window, mask=self._shared(parts.mask))

    def _shared(self, mask: Tensor | None) -> Tensor | None:
        if mask is None:
            return None
        known = next((table for table in self._tables if table.shape == mask.shape and torch.equal(table, mask)), None)
        if known is None:
            self._tables.append(mask)
        return mask if known is None else known

    def _count(self, weights: Tensor) -> None:
        """Raise SupportError once the weights, or those still expected, are more than the budget."""
        size = weights.numel() * weights.element_size()
        self._bytes += size
        left = (self._expected or 0) - len(self.recorded) - 1
        if self._layers is not None:
            left = min(left, len(self._layers) - len(self.recorded) - 1)
        check_budget(self._bytes + size * max(left, 0), self._budget, tuple(weights.shape))


def check_budget(needed: int, budget: int, shape: tuple[int, ...]) -> None:
    """Raise SupportError when so many bytes are more than the budget."""
    if needed > budget:
        raise SupportError(
            f"This model shows nothing but its weights, and keeping them ({shape[0]} heads × {shape[1]} × {shape[2]} "
            f"per layer) takes {needed / 2**30:.1f} GiB, more than the {budget / 2**30:.1f} GiB allowed. "
            "Choose some layers with layers=, or a shorter text."
        )


class WeightListener(TorchFunctionMode):
    """Sees the softmax and the attention functions of torch that a run calls."""

    def __init__(self, collector: WeightCollector) -> None:
        """Listen for a collector."""
        super().__init__()
        self.collector = collector

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function and keep what an attention module got from it."""
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            return self._attend(func, args, kwargs)
        result = func(*args, **kwargs)
        if func in SOFTMAX and _over_keys(result, args, kwargs):
            module = self._caller()
            if module is not None and self._is_attention(module):
                self.collector.keep_weights(module, args[0] if args else kwargs["input"], result)
        return result

    def _attend(self, func: Any, args: Any, kwargs: Any) -> Any:
        module = self._caller()
        named = [kwargs.get(name) for name in ("query", "key", "value", "attn_mask")]
        query, key, value, mask = (*args, *named[len(args) :])[:4]
        with_sum = with_logsumexp(*args, **kwargs)
        output = func(*args, **kwargs) if with_sum is None else with_sum[0]
        if module is None or query.dim() != 4:  # noqa: PLR2004
            return output
        place = self.collector.places.of(module)
        if self.collector.wants(place):
            scale = kwargs.get("scale")
            call = AttentionCall(module, query, key, value, mask, query.shape[-1] ** -0.5 if scale is None else scale)
            call.causal = bool(args[5] if len(args) > 5 else kwargs.get("is_causal", False))  # noqa: PLR2004
            call.logsumexp = None if with_sum is None else with_sum[1]
            self.collector.keep(place, call, output.transpose(1, 2))
        return output

    def _caller(self) -> nn.Module | None:
        """Return the innermost module of the model whose code is running."""
        frame = sys._getframe(2)
        while frame is not None:
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module) and self.collector.places.knows(owner):
                return owner
            frame = frame.f_back  # type: ignore[assignment]
        return None

    def _is_attention(self, module: nn.Module) -> bool:
        """Whether a softmax in this module weighs tokens, not experts or words: class or name says attention."""
        name = f"{type(module).__name__} {self.collector.places.path(module)}".lower()
        return "att" in name


def is_known(model: nn.Module) -> bool:
    """Whether a model was traced by the fallback before, so that nothing else need be tried."""
    return model in _PROBED


def record_weights(
    model: nn.Module, inputs: Mapping[str, Any], *, item: int, layers: Collection[int] | None, budget: int
) -> WeightRun | None:
    """Run a model through the fallback; None when no attention is seen.

    A short probe comes first: it tells how many layers there will be, and checks them against the weights the model
    gives out itself.

    Raises:
        SupportError: the weights are more than the budget, or not those the model gives out, or no [query, key] maps.
    """
    probed = _probe(model, inputs, item)
    return _record(model, inputs, item=item, layers=layers, budget=budget, probed=probed)


def _record(
    model: nn.Module,
    inputs: Mapping[str, Any],
    *,
    item: int,
    layers: Collection[int] | None,
    budget: int,
    probed: Probed | None,
) -> WeightRun | None:
    sequences = Sequences.of(inputs, model.config, item)
    expected = probed.layers if probed else getattr(model.config, "num_hidden_layers", None)
    collector = WeightCollector(model, sequences, expected=expected, budget=budget, layers=layers)
    vectors, output = run_listening(model, inputs, collector, WeightListener(collector))
    if collector.failures:
        raise next(iter(collector.failures.values()))
    if not collector.recorded and not collector.seen:
        return None
    return WeightRun(collector, vectors, output, probed.difference if probed else None)


def _probe(model: nn.Module, inputs: Mapping[str, Any], item: int) -> Probed | None:
    """Return what a short run of the same text tells, once per model; None for inputs that cannot be shortened."""
    if model in _PROBED:
        return _PROBED[model]
    short = shortened(inputs, model.config, item)
    if short is None:
        return None
    run = _record(model, short, item=0, layers=None, budget=BUDGET, probed=None)
    if run is None:
        return None
    difference = run_difference(model, short, run.collector.recorded)
    _PROBED[model] = Probed(len(run.collector.recorded), difference)
    return _PROBED[model]


def _over_keys(result: Any, args: Any, kwargs: Any) -> bool:
    """Whether a softmax is over the last axis of [batch, head, query, key] or [batch·head, query, key]."""
    if not isinstance(result, Tensor) or result.dim() not in (3, 4):
        return False
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    return dim in (-1, result.dim() - 1)


def _is_lone_decoder(weights: Tensor, module: nn.Module) -> bool:
    """Whether one token attends in a module that says it is a decoder's."""
    return weights.shape[-1] == 1 and bool(getattr(module, "is_causal", getattr(module, "is_decoder", False)))
