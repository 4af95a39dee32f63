"""The vectors that enter and leave each stack of layers during one run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn


class StackVectors:
    """Keeps what enters the first layer of each stack and what its owner gives back."""

    def __init__(self, model: nn.Module) -> None:
        """Find the outermost lists of layers, by their dotted names."""
        self._model = model
        self._stacks = {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, (nn.ModuleList, nn.Sequential))
            and len(module)
            and not re.search(r"(^|\.)\d+\.", name)
        }
        self.entering: dict[str, Tensor] = {}
        self.leaving: dict[str, Tensor] = {}

    @contextmanager
    def listening(self, active: Callable[[], bool]) -> Iterator[None]:
        """Listen during the block, to the runs for which `active()` holds; the hooks are gone afterwards."""
        with ExitStack() as stack:
            for name, layers in self._stacks.items():
                owner = self._model.get_submodule(name.rpartition(".")[0])
                first, last = self._hooks(name, active)
                handle = next(iter(layers)).register_forward_pre_hook(first, with_kwargs=True)
                stack.callback(handle.remove)
                stack.callback(owner.register_forward_hook(last).remove)
            yield

    def _hooks(self, name: str, active: Callable[[], bool]) -> tuple[Callable[..., None], Callable[..., None]]:
        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if active() and name not in self.entering:
                self._keep(self.entering, name, (*args, *kwargs.values()))

        def leave(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
            if active():
                self._keep(self.leaving, name, output)

        return enter, leave

    @staticmethod
    def _keep(home: dict[str, Tensor], name: str, values: Any) -> None:
        found = first_hidden(values)
        if found is not None:
            home[name] = found


def first_hidden(values: Any) -> Tensor | None:
    """Return the first float tensor [batch, token, d_model] of a module's inputs or output."""
    if isinstance(values, Tensor):
        return values.detach() if values.is_floating_point() and values.dim() == 3 else None  # noqa: PLR2004
    if getattr(values, "last_hidden_state", None) is not None:
        return first_hidden(values.last_hidden_state)
    if isinstance(values, (tuple, list)):
        return next((found for found in map(first_hidden, values) if found is not None), None)
    return None


def rows_of(
    hidden: Tensor | None, *, batch: int | None, item: int, length: int, keep: slice | list[int]
) -> Tensor | None:
    """Return the kept rows [token, d_model] of an item of [batch, token, d_model] (XLNet: [token, batch, d_model]).

    None where the tensor has neither shape.
    """
    if hidden is None:
        return None
    sizes = tuple(hidden.shape[:2])
    if sizes[1] == length and (batch is None or sizes[0] in (batch, 1)):
        return hidden[min(item, sizes[0] - 1)][keep]
    if sizes[0] == length and sizes[1] == batch:
        return hidden[:, item][keep]
    return None
