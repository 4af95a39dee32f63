"""Two maps laid over each other: which token of A stands where which token of B does."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby
from typing import Literal, NamedTuple, get_args

import regex
import torch
from torch import BoolTensor, Tensor

from attnviz.errors import OptionError, ShapeError
from attnviz.tokens import TokenSequence, readable

How = Literal["same", "words", "position", "none"]

MOST_NAMED = 3
_PART = regex.compile(r"(U\+[0-9A-F]{4,}|<0x[0-9A-F]{2}>|.) (\d+)/\d+ ?")  # "猫 1/3": a part of a character


class Side(NamedTuple):
    """One of two maps to compare: one head's weights and the tokens of its axes."""

    weights: Tensor  # [query, key], 0 to 1
    allowed: Tensor | None  # bool [query, key]; None: every cell that is not NaN
    query_tokens: TokenSequence
    key_tokens: TokenSequence


@dataclass(frozen=True)
class Alignment:
    """Which tokens of A and of B stand at each place of an axis they share.

    Attributes:
        how: "same" (the same tokens), "words" (the pieces of each word put together), "position" (the first token on
            the first, and so on) or "none" (not laid over each other).
        sentence: what was done and what was left out, for a person to read; plain text.
        labels: what to read at each place; "left → right" where the two differ.
        left: the positions of A's tokens at each place, at least one.
        right: the positions of B's.
        whole: whether every token of both has a place.
    """

    how: How
    sentence: str
    labels: tuple[str, ...] = ()
    left: tuple[tuple[int, ...], ...] = ()
    right: tuple[tuple[int, ...], ...] = ()
    whole: bool = True


class Aligned(NamedTuple):
    """Two maps [query, key] of one shape, float32, NaN where not allowed."""

    left: Tensor
    right: Tensor
    queries: Alignment
    keys: Alignment

    @property
    def left_allowed(self) -> BoolTensor:
        """Where A may attend, bool [query, key]: anywhere under the cell."""
        return ~self.left.isnan()  # type: ignore[return-value]

    @property
    def right_allowed(self) -> BoolTensor:
        """Where B may attend, bool [query, key]."""
        return ~self.right.isnan()  # type: ignore[return-value]

    @property
    def sentence(self) -> str:
        """What was done to both axes and what was left out, for a person to read; plain text."""
        queries, keys = self.queries.sentence, self.keys.sentence
        done = keys if queries == keys else f"Queries: {queries} Keys: {keys}"
        return done if self.keys.whole else f"{done} What a row gives to keys left out counts as one further key."


def align(left: Side, right: Side, by: How | None = None) -> Aligned:
    """Return two maps laid over each other, whatever their tokens and lengths.

    The axis of queries and that of keys are aligned by themselves (see `alignment`). Where several tokens stand at one
    place, the weights on key tokens are summed and the rows of query tokens averaged, those in which nothing is
    allowed left aside; so a row keeps its sum, but for the keys that were left out.

    Args:
        left: A.
        right: B.
        by: how to align; the first way that fits where left out.

    Raises:
        OptionError: the maps cannot be aligned in this way, or `by` is "none".
        ShapeError: a map does not fit its tokens or its mask.
    """
    _check_side(left, "A")
    _check_side(right, "B")
    queries = alignment(left.query_tokens, right.query_tokens, by)
    keys = alignment(left.key_tokens, right.key_tokens, by)
    if by == "none":
        raise OptionError('Expected two maps to lay over each other, got by="none". Draw each map by itself.')
    return Aligned(_laid(left, queries.left, keys.left), _laid(right, queries.right, keys.right), queries, keys)


def alignment(left: TokenSequence, right: TokenSequence, by: How | None = None) -> Alignment:
    """Return how the tokens of one axis of A are laid over those of B.

    Where `by` is left out, the first of these that fits:

    1. "same": the same labels in the same order.
    2. "words": the same text in different tokens. Words are put together, and joined where one tokenizer splits what
       the other does not. Texts are compared by `text` and `offsets` where both have them, otherwise by their labels,
       without case. Special tokens are left out unless both have the same ones at the same places.
    3. "position": as many tokens, some of them different.
    4. "words" again: as many words, some of them different.
    5. "position", as far as the shorter goes.

    Args:
        left: A's tokens.
        right: B's tokens.
        by: one of these ways, or "none".

    Raises:
        OptionError: the tokens cannot be aligned in this way.
    """
    if by is not None and by not in get_args(How):
        raise OptionError(f"Expected a way to align among {', '.join(get_args(How))}, got {by!r}.")
    if by == "none":
        return Alignment("none", "A and B are not laid over each other.")
    if by == "position":
        return _by_position(left, right)
    if left.labels == right.labels and by != "words":
        return _same(left)
    if by == "same":
        raise OptionError("Expected A and B to have the same tokens, got different ones. Align by words or position.")
    words = _same_words(left, right)
    if words is None and (by == "words" or len(left) != len(right)):
        words = _as_many_words(left, right)
    if words is None and by == "words":
        raise OptionError("Expected texts of as many words, got neither that nor the same text. Align by position.")
    return _by_position(left, right) if words is None else words


def _check_side(side: Side, name: str) -> None:
    expected = (len(side.query_tokens), len(side.key_tokens))
    for what, table in (("weights", side.weights), ("a mask", side.allowed)):
        if table is not None and tuple(table.shape) != expected:
            raise ShapeError(f"Expected {what} {list(expected)} for the tokens of {name}, got {list(table.shape)}.")


def _laid(side: Side, rows: Sequence[Sequence[int]], columns: Sequence[Sequence[int]]) -> Tensor:
    """Return a map with tokens put together: the mean over query tokens, the sum over key tokens."""
    weights = side.weights.detach().cpu().double()
    allowed = ~weights.isnan() if side.allowed is None else side.allowed.cpu().bool() & ~weights.isnan()
    live = allowed.any(1)[:, None]  # rows with a distribution, though its keys may be left out below
    weights = _put_together(weights.where(allowed, 0), columns, 1)
    sums, counts = _put_together(weights, rows, 0), _put_together(live.double(), rows, 0)
    anywhere = _put_together(_put_together(allowed.double(), columns, 1), rows, 0) > 0
    return (sums / counts.clamp_min(1)).where(anywhere, math.nan).float()


def _put_together(table: Tensor, groups: Sequence[Sequence[int]], dim: int) -> Tensor:
    """Return the sums over groups of positions along one axis."""
    positions = torch.tensor([at for group in groups for at in group], dtype=torch.long)
    picked = table.index_select(dim, positions)
    if len(positions) == len(groups):
        return picked
    owners = torch.tensor([owner for owner, group in enumerate(groups) for _ in group])
    shape = list(table.shape)
    shape[dim] = len(groups)
    return table.new_zeros(shape).index_add_(dim, owners, picked)


def _same(tokens: TokenSequence) -> Alignment:
    places = tuple((at,) for at in range(len(tokens)))
    return Alignment("same", f"A and B have the same {_counted(len(tokens), 'token')}.", tokens.labels, places, places)


def _by_position(left: TokenSequence, right: TokenSequence) -> Alignment:
    shorter = min(len(left), len(right))
    places = tuple((at,) for at in range(shorter))
    labels, differing = _paired(left.labels[:shorter], right.labels[:shorter])
    sentence = f"Token by token, {_counted(shorter, 'place')}: {_differing_words(differing)}."
    for name, tokens in (("A", left), ("B", right)):
        if len(tokens) > shorter:
            sentence += f" {name} is longer: its last {_counted(len(tokens) - shorter, 'token')} left out."
    return Alignment("position", sentence, labels, places, places, whole=len(left) == len(right))


def _same_words(left: TokenSequence, right: TokenSequence) -> Alignment | None:
    """Return the words of one text, or None where the texts differ."""
    sides = _both_units(left, right)
    if _letters(sides[0]) != _letters(sides[1]):
        sides = (_without_special(sides[0]), _without_special(sides[1]))
    if _letters(sides[0]) != _letters(sides[1]) or not _letters(sides[0]):
        return None
    borders = sorted(set(_ends(sides[0])) & set(_ends(sides[1])))
    groups = (_gathered(sides[0], borders), _gathered(sides[1], borders))
    labels = [_label(left, group, from_text=_has_text(left, right)) for group in groups[0]]
    return _words(left, right, labels, groups, "the same text")


def _as_many_words(left: TokenSequence, right: TokenSequence) -> Alignment | None:
    """Return the words of two texts one by one, or None where one has more."""
    sides = _both_units(left, right)
    if [unit.special for unit in sides[0]] != [unit.special for unit in sides[1]]:
        sides = (_without_special(sides[0]), _without_special(sides[1]))
    if len(sides[0]) != len(sides[1]) or not sides[0]:
        return None
    groups = (tuple(unit.positions for unit in sides[0]), tuple(unit.positions for unit in sides[1]))
    from_text = _has_text(left, right)
    names = [
        [_label(tokens, group, from_text=from_text) for group in side]
        for tokens, side in zip((left, right), groups, strict=True)
    ]
    labels, differing = _paired(*names)
    return _words(left, right, labels, groups, _differing_words(differing))


def _words(
    left: TokenSequence,
    right: TokenSequence,
    labels: Iterable[str],
    groups: tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]],
    finding: str,
) -> Alignment:
    """Return an alignment by words, with a sentence of what was left out."""
    sentence = (
        f"Word by word, {_counted(len(groups[0]), 'place')}: {finding}. Of a word's pieces, the weights on keys are "
        "summed and the rows of queries averaged."
    )
    whole = True
    for name, tokens, side in (("A", left, groups[0]), ("B", right, groups[1])):
        placed = set(chain.from_iterable(side))
        missing = [label for at, label in enumerate(tokens.labels) if at not in placed]
        if missing:
            whole = False
            sentence += f" Special tokens of {name} left out: {_listed(list(dict.fromkeys(missing)))}."
    return Alignment("words", sentence, tuple(labels), *groups, whole=whole)


class _Unit(NamedTuple):
    """A word or a special token, and what it is compared by."""

    positions: tuple[int, ...]
    letters: tuple[str, ...]  # the characters of a word; one string for a special token
    special: str  # the label of a special token, else ""


def _both_units(left: TokenSequence, right: TokenSequence) -> tuple[list[_Unit], list[_Unit]]:
    from_text = _has_text(left, right)
    return _units(left, from_text=from_text), _units(right, from_text=from_text)


def _units(tokens: TokenSequence, *, from_text: bool) -> list[_Unit]:
    """Return words and special tokens in order; a word of white space alone joins the word before it."""
    units: list[_Unit] = []
    for positions in _word_positions(tokens):
        if tokens.is_special[positions[0]]:
            label = tokens.labels[positions[0]]
            units.append(_Unit(positions, (f"special {label}",), label))
            continue
        word = _text(tokens, positions) if from_text else _spelled(tokens, positions).casefold()
        letters = tuple("".join(word.split()))
        if not letters and units and not units[-1].special:
            units[-1] = units[-1]._replace(positions=units[-1].positions + positions)
        else:
            units.append(_Unit(positions, letters, ""))
    return units


def _word_positions(tokens: TokenSequence) -> list[tuple[int, ...]]:
    """Return the positions of each word, and of each special token by itself."""

    def owner(at: int) -> tuple[bool, int]:
        word = tokens.words[at]
        return (False, at) if word is None or tokens.is_special[at] else (True, word)

    return [tuple(run) for _, run in groupby(range(len(tokens)), owner)]


def _has_text(*sides: TokenSequence) -> bool:
    return all(tokens.text is not None and tokens.offsets is not None for tokens in sides)


def _text(tokens: TokenSequence, positions: Sequence[int]) -> str:
    """Return the part of the text that some tokens stand for."""
    spans = [(tokens.offsets or ())[at] for at in positions]
    return (tokens.text or "")[min(start for start, _ in spans) : max(end for _, end in spans)]


def _spelled(tokens: TokenSequence, positions: Sequence[int]) -> str:
    """Return what the labels of some tokens spell, without their marks."""
    return "".join(
        _unmarked(tokens.labels[at], continues=at > 0 and tokens.words[at - 1] == tokens.words[at]) for at in positions
    )


def _unmarked(label: str, *, continues: bool) -> str:
    """Return a label without the marks a `TokenSequence` puts in; a split character counts with its first part."""
    stem = label.removeprefix("##") if continues else label
    whole = _PART.sub(lambda found: found[1] if found[2] == "1" else "", stem)
    return "" if whole == "∅" else regex.sub(r"[␣⏎⇥◌\s]", "", whole)


def _label(tokens: TokenSequence, positions: Sequence[int], *, from_text: bool) -> str:
    """Return what to read where some tokens stand together."""
    if len(positions) == 1 and tokens.is_special[positions[0]]:
        return tokens.labels[positions[0]]
    return readable(_text(tokens, positions).strip()) if from_text else _spelled(tokens, positions) or readable("")


def _letters(units: Sequence[_Unit]) -> list[str]:
    return [letter for unit in units for letter in unit.letters]


def _without_special(units: Sequence[_Unit]) -> list[_Unit]:
    return [unit for unit in units if not unit.special]


def _ends(units: Sequence[_Unit]) -> list[int]:
    """Return where each unit ends, counted in letters; one without letters has no end of its own."""
    return [end for end in accumulate(len(unit.letters) for unit in units) if end]


def _gathered(units: Sequence[_Unit], borders: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the units between every two borders."""
    places: list[list[int]] = [[] for _ in borders]
    start = 0
    for unit in units:
        places[min(bisect_right(borders, start), len(borders) - 1)] += unit.positions
        start += len(unit.letters)
    return tuple(map(tuple, places))


def _paired(left: Sequence[str], right: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return a label for each place, and those of the places where the two differ."""
    labels = tuple(a if a == b else f"{a} → {b}" for a, b in zip(left, right, strict=True))
    return labels, [label for label, a, b in zip(labels, left, right, strict=True) if a != b]


def _differing_words(differing: Sequence[str]) -> str:
    if not differing:
        return "no difference"
    return f"{len(differing)} {'differs' if len(differing) == 1 else 'differ'} ({_listed(differing)})"


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(labels[:MOST_NAMED]) + (", …" if len(labels) > MOST_NAMED else "")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
