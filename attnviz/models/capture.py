"""Listening to the attention calls of a model of transformers, without changing what it computes.

Models take their attention function from `transformers.AttentionInterface`. Its look-ups are extended once: they
return the stock function itself, unless a `Collector` is active in this thread's context; then they return a function
that calls the stock one and keeps what went in and what came out.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend
from torch.overrides import TorchFunctionMode

from attnviz.errors import AttnvizError, SupportError
from attnviz.layers import ComputedLayer, LayerAttention, Projection
from attnviz.models.calls import AttentionCall, output_difference, pick_tokens
from attnviz.models.masks import Crop, MaskReader
from attnviz.models.places import Place, Places
from attnviz.models.sequences import Axis, Sequences

ACTIVE: ContextVar[Collector | None] = ContextVar("attnviz_collector", default=None)
READABLE = ("sdpa", "eager")
CALL = ("module", "query", "key", "value", "attention_mask")
_INSTALLING = threading.Lock()
_MARK = "_attnviz_listens"


@dataclass(frozen=True)
class Recorded:
    """A layer of the trace with where it stands and which sequences are its axes."""

    place: Place
    layer: LayerAttention
    axes: tuple[Axis, Axis]
    crop: Crop
    shape: tuple[int, int]  # of the whole map, padding included
    difference: float | None = None
    window: int | None = None  # the sliding window the model says it has, also where the text is shorter


class Collector:
    """Keeps the attention of one run of one model."""

    def __init__(self, model: nn.Module, sequences: Sequences, *, layers: Collection[int] | None = None) -> None:
        """Be ready for a run.

        Args:
            model: the model that will run.
            sequences: what it reads.
            layers: numbers of the layers to keep; None for all.
        """
        self.sequences = sequences
        self.places = Places(model)
        self.recorded: list[Recorded] = []
        self.failures: dict[str, AttnvizError] = {}  # by stack
        self.seen: set[int] = set()  # numbers of all layers that attend
        self._layers = layers
        self._masks = MaskReader()
        self.call: AttentionCall | None = None
        self._last: AttentionCall | None = None
        self._output: Tensor | None = None  # of the last recorded call, until its projection is found

    def wants(self, place: Place) -> bool:
        """Whether the layer at a place is to be kept."""
        self.seen.add(place.layer)
        return (self._layers is None or place.layer in self._layers) and place.stack not in self.failures

    def attend(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an attention function of the interface and keep the call; the result is the function's own."""
        module, query, key, value, mask = _named(args, kwargs, CALL)
        if not isinstance(module, nn.Module) or not self.places.knows(module):
            return function(*args, **kwargs)
        if self._continues(module, query, key):
            result = function(*args, **kwargs)
            self._widen(value)
            return result
        place = self.places.of(module)
        if not self.wants(place):
            return function(*args, **kwargs)
        if name not in READABLE:
            self.failures[place.stack] = SupportError(
                f"The model runs with the attention implementation {name!r}, which cannot be read. "
                "Load it with attn_implementation='sdpa'."
            )
            return function(*args, **kwargs)
        options = {key: value for key, value in kwargs.items() if key not in CALL}
        scaling = options.get("scaling", args[5] if len(args) > 5 else None)  # noqa: PLR2004
        scaling = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
        call = AttentionCall(module, query, key, value, mask, scaling, options)
        if name == "sdpa":
            forbid_later_keys(call)
        self.call = call
        try:
            result = function(*args, **kwargs)
        finally:
            self.call = None
        self.keep(place, call, result[0])
        return result

    def _continues(self, module: nn.Module, query: Tensor, key: Tensor) -> bool:
        """Whether a call asks for the last call's weights again, for the other half of the values (DiffLlama)."""
        last = self._last
        return last is not None and last.module is module and last.query is query and last.key is key

    def _widen(self, value: Tensor) -> None:
        """Set the other half of the values beside those of the last layer."""
        last = self.recorded[-1]
        if isinstance(last.layer, ComputedLayer):
            half = pick_tokens(value, last.crop.item, last.crop.columns)
            wide = replace(last.layer, value=torch.cat([last.layer.value, half], dim=-1))
            self.recorded[-1] = replace(last, layer=wide)

    def keep(self, place: Place, call: AttentionCall, output: Tensor) -> None:
        """Turn a call into a layer; a call that cannot be one makes its stack fail, not the run."""
        try:
            self._check_batch(place, call)
            axes = self.sequences.axes(place, call.shape[1])
            crop = Crop(self.sequences.item, axes[0].cut(call.shape[0]), axes[1].cut(call.shape[1]))
            layer = call.layer(place.layer, self._role(place, call), crop, self._masks)
            difference = output_difference(layer, output, crop)
        except AttnvizError as error:
            self.failures.setdefault(place.stack, error)
            return
        if not place.crosses and not place.in_encoder and layer.role != "cross":
            layer = replace(layer, role="decoder" if attends_back(layer, call.module) else "encoder")
        self.recorded.append(Recorded(place, layer, axes, crop, call.shape, difference, _window(call)))
        self._last = call
        self._output = output

    def drop_failed(self) -> None:
        """Forget the layers of stacks of which some layer could not be kept."""
        self.recorded = [one for one in self.recorded if one.place.stack not in self.failures]

    def find_projection(self, vectors: Any, weight: Any, bias: Any) -> None:
        """Note the matrix that multiplies the last call's output itself: it is the layer's W^O."""
        output = self._output
        if output is None or not isinstance(vectors, Tensor) or not isinstance(weight, Tensor):
            return
        same = vectors.data_ptr() == output.data_ptr() and vectors.numel() == output.numel()
        if same and weight.shape[-1] == output.shape[-2] * output.shape[-1]:
            last = self.recorded[-1]
            found = Projection(weight.detach(), None if bias is None else bias.detach())
            self.recorded[-1] = replace(last, layer=replace(last.layer, projection=found))
            self._output = None

    def _role(self, place: Place, call: AttentionCall) -> str:
        if place.crosses or call.shape[0] != call.shape[1]:
            return "cross"
        return "encoder" if place.in_encoder or not self.sequences.is_encoder_decoder else "decoder"

    def _check_batch(self, place: Place, call: AttentionCall) -> None:
        batch, expected = call.query.shape[0], self.sequences.batch
        if call.query.dim() != 4 or (expected is not None and batch not in (expected, 1)):  # noqa: PLR2004
            raise SupportError(
                f"{place.path} attends in pieces ({batch} for {expected} in the batch), not over one sequence, "
                "so it has no [query, key] map to show."
            )


def forbid_later_keys(call: AttentionCall) -> None:
    """Apply what PyTorch's attention does besides the mask, as transformers' `sdpa_attention_forward` decides it.

    Without a mask, with more than one query, a causal module forbids later keys, counted from the first query and the
    first key; keys past the queries are the empty part of a cache.
    """
    causal = call.options.get("is_causal")
    causal = getattr(call.module, "is_causal", True) if causal is None else causal
    queries, keys = call.shape
    call.causal = bool(causal) and queries > 1 and call.mask is None
    if call.causal and keys > queries:
        call.used_keys = queries


def _window(call: AttentionCall) -> int | None:
    """Return the sliding window that the call or its module names."""
    window = call.options.get("sliding_window", getattr(call.module, "sliding_window", None))
    return window if isinstance(window, int) and window > 0 else None


def attends_back(layer: LayerAttention, module: nn.Module) -> bool:
    """Whether a layer's tokens see the earlier ones only: a decoder's.

    Some decoders let a prefix see itself whole (PaliGemma); then the module's own word counts, as for one token.
    """
    if layer.rule.causal:
        return True
    own = bool(getattr(module, "is_causal", False))
    return own and (layer.rule.mask is not None or layer.shape[2] == 1)


class Listener(TorchFunctionMode):
    """Sees the functions of torch that a run calls: it takes the log-sum-exp and finds the output projections."""

    def __init__(self, collector: Collector) -> None:
        """Listen for a collector."""
        super().__init__()
        self.collector = collector

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, or one that gives the same bits and the log-sum-exp besides."""
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            return self.attend(func, args, kwargs)
        if func is torch.nn.functional.linear:
            self.collector.find_projection(*_named(args, kwargs, ("input", "weight", "bias")))
        elif func is torch.addmm and len(args) == 3:  # noqa: PLR2004 (GPT-2's Conv1D keeps its matrix transposed)
            self.collector.find_projection(args[1], args[2].T, args[0])
        return func(*args, **kwargs)

    def attend(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run PyTorch's attention; inside a call of the interface, keep its log-sum-exp where the CPU gives it."""
        call = self.collector.call
        if call is None:
            return func(*args, **kwargs)
        found = with_logsumexp(*args, **kwargs)
        if found is None:
            return func(*args, **kwargs)
        call.logsumexp = found[1].reshape(found[1].shape[0], -1, call.query.shape[-2])
        return found[0]


def with_logsumexp(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor] | None:
    """Return the output and the log-sum-exp of the CPU's flash attention where PyTorch would use it, None elsewhere.

    The output is bit-identical to `scaled_dot_product_attention` with the same arguments.
    """
    if query.device.type != "cpu" or torch.is_grad_enabled():
        return None
    choice = torch._fused_sdp_choice(
        query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
        enable_gqa=enable_gqa,
    )  # fmt: skip
    if choice != SDPBackend.FLASH_ATTENTION.value:
        return None
    if attn_mask is not None and attn_mask.dtype == torch.bool:  # as PyTorch's own attention does first
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, -torch.inf)
    output, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )
    return output, logsumexp


@contextmanager
def collecting(collector: Collector, mode: TorchFunctionMode) -> Iterator[None]:
    """Make a collector hear the runs of this thread's context during the block."""
    _install()
    token = ACTIVE.set(collector)
    try:
        with mode, torch.no_grad():
            yield
    finally:
        ACTIVE.reset(token)


def _install() -> None:
    """Extend the interface's look-ups, once per process."""
    from transformers.modeling_utils import AttentionInterface

    with _INSTALLING:
        if getattr(AttentionInterface, _MARK, False):
            return
        stock_get, stock_item = AttentionInterface.get_interface, AttentionInterface.__getitem__

        @functools.wraps(stock_get)
        def get_interface(self: Any, attn_implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
            return _heard(attn_implementation, stock_get(self, attn_implementation, default))

        @functools.wraps(stock_item)
        def item(self: Any, key: str) -> Callable[..., Any]:
            return _heard(key, stock_item(self, key))

        AttentionInterface.get_interface = get_interface
        AttentionInterface.__getitem__ = item
        setattr(AttentionInterface, _MARK, True)


def _heard(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function itself while nobody listens, else one that the collector runs."""
    collector = ACTIVE.get()
    if collector is None or getattr(function, _MARK, False):
        return function

    @functools.wraps(function)
    def attention(*args: Any, **kwargs: Any) -> Any:
        return collector.attend(name, function, args, kwargs)

    setattr(attention, _MARK, True)
    return attention


def _named(args: Any, kwargs: Any, names: tuple[str, ...]) -> list[Any]:
    """Return arguments however they were given, None for those that were not."""
    return [args[at] if at < len(args) else kwargs.get(name) for at, name in enumerate(names)]
