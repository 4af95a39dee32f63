"""Plain names for heads that follow a pattern on the text at hand, and none for the others."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

from attnviz.analysis.patterns import PATTERNS, Baseline

if TYPE_CHECKING:
    import pandas as pd

THRESHOLD = 0.5
"""The least score: more than half of the weight, so more on the pattern than on everything else together."""

MULTIPLE = 2.0
"""How many times the score of a uniform head a score has to be above.

Where a text is short, or most of it is punctuation, any head has half of its weight on a pattern. Of two tokens the
one before is the only other, of "[CLS] a [SEP]" two thirds are special: no head is named for that."""

FEWEST_ROWS = 4
"""The least number of queries that have a target: one word that is repeated once is no pattern."""


def head_names(scores: pd.DataFrame, baseline: Baseline) -> list[list[str]]:
    """Return what each head may be called on this text, such as ["previous-token: 0.93"].

    A name is a pattern with its score, where the score is at least `THRESHOLD`, above `MULTIPLE` times that of a
    uniform head, and a mean over at least `FEWEST_ROWS` queries. It says where the weight lies, not what for.

    Args:
        scores: rows of `patterns`, all, some or one, in any order.
        baseline: that of the same trace.

    Returns:
        A list for each row, the highest score first; empty for a head that follows no pattern.
    """
    names = [name for name in PATTERNS if name in scores]
    place = {head: at for at, head in enumerate(_heads(baseline.uniform))}
    order = [place[head] for head in _heads(scores)]
    own = scores[names].to_numpy()
    uniform, rows = (table[names].to_numpy()[order] for table in baseline)
    followed = (own >= THRESHOLD) & (own > MULTIPLE * uniform) & (rows >= FEWEST_ROWS)
    return [_named(dict(compress(zip(names, row, strict=True), kept))) for row, kept in zip(own, followed, strict=True)]


def _heads(table: pd.DataFrame) -> list[tuple[int, int]]:
    return list(zip(table["layer"], table["head"], strict=True))


def _named(scores: dict[str, float]) -> list[str]:
    """Return the names of one head from the scores that count."""
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    return [f"{name.replace('_', '-')}: {score:.2f}" for name, score in ranked]
