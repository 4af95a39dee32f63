"""What each number of a head is called, how it is written, and what it means."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from attnviz.analysis.patterns import PATTERNS
from attnviz.statistics import DEFINITIONS


@dataclass(frozen=True)
class Number:
    """A number that every head has.

    Attributes:
        title: what a person reads above the column.
        help: what it means, which values it takes, and where it comes from.
        unit: what stands behind it.
        decimals: how many are shown.
    """

    title: str
    help: str
    unit: str = ""
    decimals: int = 2

    def written(self, value: float) -> str:
        """Return the value as a person reads it."""
        return "n/a" if pd.isna(value) else f"{value:.{self.decimals}f} {self.unit}".strip()

    @property
    def axis(self) -> str:
        """What an axis of it is called."""
        return f"{self.title.lower()} ({self.unit})" if self.unit else self.title.lower()


GUIDE = "[All definitions](guide#numbers)"
NUMBERS = {
    name: Number(
        known.title, f"{known.definition} {known.range}. {GUIDE}", known.unit, 1 if known.unit == "tokens" else 2
    )
    for name, known in DEFINITIONS.items()
} | {
    name: Number(pattern.title, f"{pattern.definition} {pattern.range}. {pattern.source}. {GUIDE}")
    for name, pattern in PATTERNS.items()
    if not pattern.statistic
}
"""By the names of the columns: the statistics of a trace, then the patterns that are none of them."""
