"""Cells of a toy experiment's matrices that a person has changed, and the short text that says so in an address."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.attention import CrossAttention, MultiHeadCrossAttention, MultiHeadSelfAttention, SelfAttention
from attnviz.errors import OptionError

MATRICES = {
    "x": "X",
    "context": "X_enc",
    **{"q": "W^Q", "bq": "b^Q", "k": "W^K", "bk": "b^K", "v": "W^V", "bv": "b^V", "o": "W^O", "bo": "b^O"},
    "mask": "the mask",
}
"""What may be edited, by its name in an address, and what a person calls it."""

MOST_EDITS = 256
"""Edited cells at most: an address of a few thousand characters, which every browser takes."""

LARGEST = 1e6
"""The largest number a cell takes: scores stay far below the largest float32."""

_PART = re.compile(r"([a-z]+):([0-9]{1,6})\.([0-9]{1,6})=([^=;:]+)")


class Cell(NamedTuple):
    """A cell of a matrix: a row of W^Q is a dimension of X, a bias has the one row 0."""

    matrix: str
    row: int
    column: int


class Edits(Mapping[Cell, float]):
    """The numbers a person has put into cells, in the order of the matrices, their rows and columns.

    As text they are "q:0.1=0.5;x:2.3=-1": matrix, row, column, number. `Edits.parse(str(edits)) == edits`.
    """

    def __init__(self, numbers: Mapping[Cell, float] | None = None) -> None:
        """Keep numbers by cell, as float32 has them.

        Raises:
            OptionError: there are more than `MOST_EDITS`, a matrix is unknown, or a number does not fit its cell: it
                is beyond ±`LARGEST`, NaN, or, in the mask, other than 0 and 1.
        """
        numbers = {} if numbers is None else numbers
        if len(numbers) > MOST_EDITS:
            raise OptionError(f"Expected at most {MOST_EDITS} edited cells, got {len(numbers)}. Reset a matrix first.")
        for cell, number in numbers.items():
            _check(cell, number)
        order = {name: at for at, name in enumerate(MATRICES)}
        ordered = sorted(numbers, key=lambda cell: (order[cell.matrix], cell))
        self._numbers = {cell: float(torch.tensor(numbers[cell], dtype=torch.float32)) for cell in ordered}

    @classmethod
    def parse(cls, text: str) -> Edits:
        """Read the text of an address; of a cell named twice the last number counts.

        Nothing is dropped: what were left of a broken text would show other numbers than the address promises.

        Raises:
            OptionError: a part is no edit, or the edits are none that `Edits` takes.
        """
        numbers: dict[Cell, float] = {}
        for part in filter(None, (part.strip() for part in text.split(";"))):
            found = _PART.fullmatch(part)
            number = None if found is None else _number(found[4])
            if found is None or number is None:
                raise OptionError(
                    f"Expected edits such as q:0.1=0.5 (matrix, row, column, number), got {part[:40]!r}. "
                    "Reset the edits."
                )
            numbers[Cell(found[1], int(found[2]), int(found[3]))] = number
        return cls(numbers)

    def __str__(self) -> str:
        """Return the short text; empty without edits."""
        return ";".join(f"{name}:{row}.{column}={_shortest(number)}" for (name, row, column), number in self.items())

    def __repr__(self) -> str:
        return f"Edits.parse({str(self)!r})"

    def __getitem__(self, cell: Cell) -> float:
        return self._numbers[cell]

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def without(self, matrix: str) -> Edits:
        """Return the edits of the other matrices: one matrix is reset."""
        return Edits({cell: number for cell, number in self.items() if cell.matrix != matrix})

    def with_table(self, matrix: str, unedited: Tensor, table: Tensor, *, first_column: int = 0) -> Edits:
        """Return the edits after a person has worked in a table of a matrix, or of some of its columns.

        Args:
            matrix: the name of the matrix.
            unedited: [row, column], the whole matrix before any edit; a cell that is as there is no edit.
            table: [row, some columns], as it is now.
            first_column: which column of the matrix is the table's first.

        Raises:
            OptionError: see `Edits`.
        """
        columns = range(first_column, first_column + table.shape[1])
        kept = {at: number for at, number in self.items() if at.matrix != matrix or at.column not in columns}
        table, part = table.float(), unedited[:, columns.start : columns.stop].float()
        changed = {
            Cell(matrix, row, column + first_column): float(table[row, column])
            for row, column in (table != part).nonzero().tolist()
        }
        return Edits(kept | changed)

    def applied(self, matrices: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the matrices with the edits in them; those without edits are the same tensors.

        Args:
            matrices: [row, column] each, by name, as `run_experiment` makes them.

        Raises:
            OptionError: an edit is of a matrix or of a cell that there is not.
        """
        edited = dict(matrices)
        for name in dict.fromkeys(cell.matrix for cell in self):
            if name not in matrices:
                known = ", ".join(f"{key} ({title})" for key, title in MATRICES.items() if key in matrices)
                raise OptionError(
                    f"Expected an edit of {known}, got one of {name}. Reset it, or change the module back."
                )
            edited[name] = matrices[name].clone()
        for cell, number in self.items():
            rows, columns = edited[cell.matrix].shape
            if cell.row >= rows or cell.column >= columns:
                raise OptionError(
                    f"Expected an edit within {MATRICES[cell.matrix]} [{rows}, {columns}], got row {cell.row}, column "
                    f"{cell.column}, counted from 0. Reset it, or take the text and the sizes it was made for."
                )
            edited[cell.matrix][cell.row, cell.column] = number
        return edited


Module = SelfAttention | CrossAttention | MultiHeadSelfAttention | MultiHeadCrossAttention


def weights_of(module: Module) -> dict[str, Tensor]:
    """Return a module's matrices as the equations have them, by their names in `MATRICES`.

    W^Q, W^K, W^V and W^O are [row, column] with Q = XW^Q + b^Q: torch keeps their transposes. Biases are [1, column].
    They are views of the module's own numbers.
    """
    found: dict[str, Tensor] = {}
    for name, linear in _linears(module).items():
        found |= {name: linear.weight.detach().T, f"b{name}": linear.bias.detach()[None]}
    return found


def put_weights(module: Module, matrices: Mapping[str, Tensor]) -> None:
    """Give a module the matrices that `weights_of` gave, or edited ones; it reads them and never changes them."""
    for name, linear in _linears(module).items():
        linear.weight = nn.Parameter(matrices[name].T, requires_grad=False)
        linear.bias = nn.Parameter(matrices[f"b{name}"][0], requires_grad=False)


def _linears(module: Module) -> dict[str, nn.Linear]:
    """Return the projections of a module, "q", "k", "v" and, of several heads, "o"."""
    names = (
        *module.projections,
        *(["out"] if isinstance(module, MultiHeadSelfAttention | MultiHeadCrossAttention) else []),
    )
    return {short: getattr(module, name) for short, name in zip("qkvo", names, strict=False)}


def _shortest(number: float) -> str:
    """Return the shortest text that float32 reads as the number."""
    return f"{float(str(np.float32(number))):.9g}"


def _number(text: str) -> float | None:
    """Return the number a text spells, None where it spells none."""
    try:
        return float(text)
    except ValueError:
        return None


def _check(cell: Cell, number: float) -> None:
    """Raise OptionError unless the number may stand in the cell of a matrix that may be edited."""
    if cell.matrix not in MATRICES:
        raise OptionError(f"Expected an edit of {', '.join(MATRICES)}, got one of {cell.matrix!r}. Reset the edits.")
    where = f"row {cell.row}, column {cell.column} of {MATRICES[cell.matrix]}"
    if cell.matrix == "mask" and number not in (0, 1):
        raise OptionError(f"Expected 1 (may attend) or 0 in {where}, got {number:g}. Type one of these.")
    if math.isnan(number) or abs(number) > LARGEST:
        raise OptionError(f"Expected a number from −{LARGEST:,.0f} to {LARGEST:,.0f} in {where}, got {number:g}.")
