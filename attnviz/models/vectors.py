"""The vectors that enter and leave each stack of layers during one run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

FLOAT_BYTES = 4
HIDDEN_BUDGET = 256 << 20
"""Bytes, as float32, of vectors between the layers that are kept of a stack at most; above, none are."""


class StackVectors:
    """Keeps what enters the first layer of each stack, what leaves each layer, and what the stack's owner gives back.

    Attributes:
        entering: by the stack's dotted name, what its first layer was given first.
        between: what left its layers, in the order of their calls; empty where that is more than the budget.
        leaving: what the module around the stack gave back.
        needed: bytes that the vectors between the layers take as float32, as far as known.
    """

    def __init__(self, model: nn.Module, *, batch: int | None, item: int, budget: int = HIDDEN_BUDGET) -> None:
        """Find the outermost lists of layers, by their dotted names.

        Args:
            model: the model that will run.
            batch: rows of the batch; None where the inputs do not say.
            item: the row that is kept.
            budget: bytes kept of the vectors between the layers of a stack at most.
        """
        self._model = model
        self._batch, self._item, self._budget = batch, item, budget
        self._stacks = {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, (nn.ModuleList, nn.Sequential))
            and len(module)
            and not re.search(r"(^|\.)\d+\.", name)
        }
        self.entering: dict[str, Tensor] = {}
        self.between: dict[str, list[Tensor]] = {name: [] for name in self._stacks}
        self.leaving: dict[str, Tensor] = {}
        self.needed: Counter[str] = Counter()

    def layers(self, stack: str) -> list[nn.Module]:
        """Return the layers of a stack, by its dotted name; none where the model has no such list."""
        return list(self._stacks.get(stack, ()))

    @contextmanager
    def listening(self, active: Callable[[], bool]) -> Iterator[None]:
        """Listen during the block, to the runs for which `active()` holds; the hooks are gone afterwards."""
        with ExitStack() as stack:
            for name, layers in self._stacks.items():
                owner = self._model.get_submodule(name.rpartition(".")[0])
                enter, step, leave = self._hooks(name, active)
                handle = next(iter(layers)).register_forward_pre_hook(enter, with_kwargs=True)
                stack.callback(handle.remove)
                for layer in dict.fromkeys(layers):
                    stack.callback(layer.register_forward_hook(step).remove)
                stack.callback(owner.register_forward_hook(leave).remove)
            yield

    def _hooks(self, name: str, active: Callable[[], bool]) -> tuple[Callable[..., None], ...]:
        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            found = self._found((*args, *kwargs.values())) if active() and name not in self.entering else None
            if found is not None:
                self.entering[name] = found.clone()

        def step(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
            found = self._found(output) if active() else None
            if found is not None:
                self._keep(name, found)

        def leave(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
            found = self._found(output) if active() else None
            if found is not None:
                self.leaving[name] = found

        return enter, step, leave

    def _found(self, values: Any) -> Tensor | None:
        """Return the item's vectors, with an axis of one for the batch."""
        hidden = first_hidden(values)
        if hidden is None or hidden.shape[0] != self._batch:
            return hidden
        return hidden[self._item : self._item + 1]

    def _keep(self, name: str, hidden: Tensor) -> None:
        """Keep a copy, as layers may change what they are given in place; forget all of them above the budget."""
        kept, size = self.between[name], hidden.numel() * FLOAT_BYTES
        self.needed[name] += size
        expected = self.needed[name] + size * max(len(self._stacks[name]) - len(kept), 0)
        if expected <= self._budget:
            kept.append(hidden.clone())
        else:
            kept.clear()


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
