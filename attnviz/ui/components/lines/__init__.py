"""Lines between the tokens that attend and the tokens attended to, for one head or several."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeGuard, get_args

import numpy as np

from attnviz.analysis.strongest import Strongest
from attnviz.plots.theme import HEADS_BESIDE, Ink
from attnviz.ui.components import colours, declare, pack
from attnviz.ui.components.selection import Place

Pair = Literal["all", "AA", "AB", "BA", "BB"]
"""Which sentences of a pair the two ends of a line belong to: query first, then key."""

MOST_WHOLE = 128
"""Up to this many tokens a side, whole maps are in the browser."""

MOST_KEYS = 8
"""Above that, this many keys of each query are sent."""

HTML = """
<div class="lines" hidden><div class="frame">
  <div class="beside">
    <div class="legend" role="group" aria-label="Heads shown"></div>
    <label class="slide">Weights of at least <b class="threshold-value" aria-hidden="true"></b>
      <input class="threshold" type="range" min="0" step="1" aria-label="Weights of at least"></label>
    <label class="slide">Strongest per query <b class="top-value" aria-hidden="true"></b>
      <input class="top" type="range" min="0" step="1" aria-label="Strongest per query"></label>
    <label class="pair">Between sentences
      <select>
        <option value="all">all</option><option value="AA">A → A</option><option value="AB">A → B</option>
        <option value="BA">B → A</option><option value="BB">B → B</option>
      </select></label>
    <label class="toggle"><input class="horizontal" type="checkbox"> Horizontal</label>
    <p class="count"></p>
  </div>
  <div class="stage" dir="ltr">
    <div class="headings"><p class="heading query">query: attends from</p>
      <p class="heading key">key: attended to</p></div>
    <div class="scroll"><div class="sheet">
      <canvas class="every" aria-hidden="true"></canvas><canvas class="chosen" aria-hidden="true"></canvas>
      <div class="side query" role="group" aria-label="Queries: attend from"></div>
      <div class="side key" role="group" aria-label="Keys: attended to"></div>
    </div></div>
    <p class="said" aria-live="polite"></p>
  </div>
</div></div>
"""


@dataclass(frozen=True)
class LineOptions:
    """Which lines are drawn, and how.

    Attributes:
        threshold: the least weight of a line, 0 to 1; None for 0.05, or less where few queries have one so large.
        top: how many lines leave each query, the strongest; None for all that are here.
        pair: of a sentence pair, where lines start and end.
        horizontal: queries along the top and keys along the bottom, in reading order.
    """

    threshold: float | None = None
    top: int | None = None
    pair: Pair = "all"
    horizontal: bool = False

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> LineOptions:
        """Return options from what a browser or an address says; what makes no sense is left at its default."""
        default = cls()
        threshold, top = told.get("threshold"), told.get("top")
        pair: Any = told.get("pair")
        return cls(
            threshold=min(max(float(threshold), 0.0), 1.0) if _is_number(threshold) else default.threshold,
            top=top if isinstance(top, int) and not isinstance(top, bool) and top >= 1 else default.top,
            pair=pair if pair in get_args(Pair) else default.pair,
            horizontal=told.get("horizontal") is True,
        )


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def render_lines(
    *,
    strongest: Mapping[Place, Strongest] | None,
    options: LineOptions,
    ink: Ink,
    key: str = "lines",
) -> None:
    """Draw the lines of the heads that `share_selection` says are shown.

    What a person changes acts in the browser at once and is told to `share_selection`'s `on` as "lines"
    {"threshold", "top", "pair", "horizontal"}; see `LineOptions.read`.

    Args:
        strongest: per head, the strongest keys of each query, where its whole map is too large to be shared (more
            than `MOST_WHOLE` tokens a side; `MOST_KEYS` of each); None where whole maps are shared.
        options: which lines are drawn at first, or now that Python has changed its mind.
        ink: how strong the ink of a weight is.
        key: of the component.
    """
    found = strongest or {}
    arrays: list[np.ndarray] = [column.numpy() for cells in found.values() for column in cells]
    header = colours(ink) | {"heads": HEADS_BESIDE, "strongest": list(found), "options": asdict(options)}
    declare("lines", HTML)(key=key, data=pack(header, arrays))
