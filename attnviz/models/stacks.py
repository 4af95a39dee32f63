"""Which stacks of layers a trace shows: one sequence per role."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from attnviz.errors import SupportError
from attnviz.models.capture import Recorded


def choose_stacks(
    recorded: list[Recorded],
) -> tuple[dict[str, list[Recorded]], dict[tuple[str, str], list[Recorded]]]:
    """Return the layers of each role, and those of the stacks that are left out.

    A role's tokens are one sequence. Where several stacks have a role (the two towers of SigLIP), those that read the
    inputs' text are chosen, else the one with the most layers.

    Raises:
        SupportError: the layers of the chosen stack attend over sequences of different lengths.
    """
    groups: dict[tuple[str, str], list[Recorded]] = {}
    for one in recorded:
        groups.setdefault((one.layer.role, one.place.stack), []).append(one)
    some_read = any(_reads_text(group[0]) for group in groups.values())
    chosen: dict[str, list[Recorded]] = {}
    for role in sorted({role for role, _ in groups}):
        stacks = {stack: group for (at, stack), group in groups.items() if at == role}
        reading = [stack for stack, group in stacks.items() if _reads_text(group[0])]
        if role == "cross" and some_read and not (reading and _knows_keys(stacks[reading[0]][0])):
            continue  # beside the text: Inkling's states of earlier blocks, DeepSeek V4's keys of several tokens each
        best = reading or [max(stacks, key=lambda stack: len(stacks[stack]))]
        for stack in best:
            del groups[role, stack]
        chosen[role] = _numbered([one for one in recorded if one.layer.role == role and one.place.stack in best])
        _check_one_length(role, best[0], chosen[role])
    return chosen, groups


def _numbered(layers: list[Recorded]) -> list[Recorded]:
    """Return the layers of one role; where two stacks use one number (HRM's two modules), by the order of the calls."""
    if len({one.layer.layer for one in layers}) == len(layers):
        return layers
    return [replace(one, layer=replace(one.layer, layer=number)) for number, one in enumerate(layers)]


def _knows_keys(one: Recorded) -> bool:
    """Whether what a cross-attention attends to is a sequence of its own, by its name or by its length."""
    return one.place.crosses or one.axes[1].length == one.shape[1]


def _reads_text(one: Recorded) -> bool:
    axis = one.axes[0]
    return axis.ids is not None and axis.length == one.shape[0]


def _check_one_length(role: str, stack: str, group: list[Recorded]) -> None:
    shapes = Counter(one.layer.shape[1:] for one in group)
    if len(shapes) > 1:
        sizes = ", ".join(f"{queries} × {keys}" for queries, keys in shapes)
        raise SupportError(
            f"The {role} layers of {stack} attend over sequences of different lengths ({sizes}), which one trace "
            "cannot hold. Trace one of them with layers=."
        )
