"""Where an attention call stands in its model: the stack it belongs to, its layer's number, and its role."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

CROSS_NAMES = {"encoder_attn", "crossattention", "cross_attn", "cross_attention", "EncDecAttention", "enc_attn"}
"""Names of cross-attention modules, for models that do not name theirs in `_can_record_outputs`."""


@dataclass(frozen=True)
class Place:
    """Where one attention call stands.

    Attributes:
        path: the module's dotted name in the model.
        stack: the dotted name of the list of layers it is in.
        layer: the model's own number of the layer.
        crosses: whether the module attends to another sequence by name.
        in_encoder: whether it is inside the encoder of an encoder-decoder.
    """

    path: str
    stack: str
    layer: int
    crosses: bool
    in_encoder: bool


class Places:
    """Finds the place of each call of one forward pass, in the order of the calls."""

    def __init__(self, model: nn.Module) -> None:
        """Read the names of the model's modules."""
        self.model = model
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._paths: dict[nn.Module, list[str]] = {}  # more than one where layers share a module (Zamba)
        for name, module in self._modules.items():
            self._paths.setdefault(module, []).append(name)
        self._cross_recorders = _cross_recorders(model)
        self._encoder = _encoder_path(model)
        self._turns: Counter[nn.Module] = Counter()
        self._used: Counter[tuple[str, bool, int]] = Counter()
        self._calls: Counter[tuple[str, bool]] = Counter()

    def knows(self, module: nn.Module) -> bool:
        """Whether the module is part of the model."""
        return module in self._paths

    def path(self, module: nn.Module) -> str:
        """Return the module's dotted name in the model."""
        return self._paths.get(module, [""])[0]

    def of(self, module: nn.Module) -> Place:
        """Return the place of the call that this module makes now, counting it.

        The number is the module's `layer_idx`, else the first integer in its path. A module that stands in several
        layers is in the next of them with each call; one that stands in one layer and is called again (ALBERT's) is
        numbered by the order of the calls.
        """
        paths = self._paths.get(module, [""])
        path = paths[self._turns[module] % len(paths)]
        self._turns[module] += 1
        stack, number = split_path(path)
        own = getattr(module, "layer_idx", None)
        layer = own if isinstance(own, int) and own >= 0 and len(paths) == 1 else number
        crosses = self._crosses(path)
        ordinal = self._calls[stack, crosses]
        self._calls[stack, crosses] += 1
        if layer is None or self._used[stack, crosses, layer]:
            layer = ordinal
        self._used[stack, crosses, layer] += 1
        return Place(path, stack, layer, crosses, self._in_encoder(path))

    def _crosses(self, path: str) -> bool:
        if set(path.split(".")) & CROSS_NAMES:
            return True
        around = [self._modules[name] for name in _upwards(path)]
        return any(
            name in f".{path}." and any(isinstance(module, kind) for module in around)
            for kind, name in self._cross_recorders
        )

    def _in_encoder(self, path: str) -> bool:
        return self._encoder is not None and (path + ".").startswith(self._encoder + ".")


def split_path(path: str) -> tuple[str, int | None]:
    """Return the part of a dotted path before its first integer, and that integer."""
    found = re.search(r"(^|\.)(\d+)(\.|$)", path)
    return (path, None) if found is None else (path[: found.start()], int(found[2]))


def _upwards(path: str) -> Iterator[str]:
    """Yield the path and those of the modules around it, short of the model itself."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _cross_recorders(model: nn.Module) -> set[tuple[type, str]]:
    """Return the class and the dotted name by which a model's parts record their cross-attention."""
    found: set[tuple[type, str]] = set()
    for part in model.modules():
        recorders = (getattr(type(part), "_can_record_outputs", None) or {}).get("cross_attentions", [])
        for recorder in recorders if isinstance(recorders, (list, tuple)) else [recorders]:
            kind = recorder if isinstance(recorder, type) else getattr(recorder, "target_class", None)
            name = (getattr(recorder, "layer_name", None) or "").strip(".")
            if isinstance(kind, type):
                found.add((kind, f".{name}." if name else "."))
    return found


def _encoder_path(model: nn.Module) -> str | None:
    """Return the path of the encoder of an encoder-decoder, None for other models."""
    config: Any = getattr(model, "config", None)
    if not getattr(config, "is_encoder_decoder", False) or not hasattr(model, "get_encoder"):
        return None
    encoder = model.get_encoder()  # type: ignore[operator]
    return next((name for name, module in model.named_modules() if module is encoder), None) or None
