"""Running a model that others may be using: in eval mode, for as long as anyone traces it, and then as it was."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.overrides import TorchFunctionMode

from attnviz.models.capture import ACTIVE, Collector, collecting
from attnviz.models.sequences import is_index
from attnviz.models.vectors import StackVectors

_LOCK = threading.Lock()
_HELD: WeakKeyDictionary[nn.Module, tuple[int, list[nn.Module]]] = WeakKeyDictionary()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Keep a model in eval mode during the block; the last of several blocks puts the train modes back."""
    with _LOCK:
        count, training = _HELD.get(model, (0, []))
        training += [module for module in model.modules() if module.training]
        for module in training:
            module.training = False
        _HELD[model] = (count + 1, training)
    try:
        yield
    finally:
        with _LOCK:
            count, training = _HELD.pop(model)
            if count > 1:
                _HELD[model] = (count - 1, training)
            else:
                for module in training:
                    module.training = True


def without_cache(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs with `use_cache=False` where the model has such a switch: a trace runs once."""
    settled = dict(inputs)
    if "use_cache" not in settled and "use_cache" in inspect.signature(model.forward).parameters:
        settled["use_cache"] = False
    return settled


def run_listening(
    model: nn.Module, inputs: Mapping[str, Any], collector: Collector, mode: TorchFunctionMode
) -> tuple[StackVectors, Any]:
    """Run a model once with a collector; return the vectors of its stacks and its output."""
    sequences = collector.sequences
    vectors = StackVectors(model, batch=sequences.batch, item=sequences.item)

    def active() -> bool:
        return ACTIVE.get() is collector

    with evaluating(model), vectors.listening(active), _hearing_decoder(model, collector), collecting(collector, mode):
        output = model(**without_cache(model, inputs))
    return vectors, output


@contextmanager
def _hearing_decoder(model: Any, collector: Collector) -> Iterator[None]:
    """Listen for the ids that an encoder-decoder makes for its decoder, where it was not given any."""

    def hear(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = kwargs.get("input_ids", args[0] if args else None)
        if ACTIVE.get() is collector and is_index(ids):
            collector.sequences.hear_decoder(ids)

    paired = collector.sequences.is_encoder_decoder and hasattr(model, "get_decoder")
    decoder = model.get_decoder() if paired else None
    if not isinstance(decoder, nn.Module) or decoder is model:
        yield
        return
    handle = decoder.register_forward_pre_hook(hear, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
