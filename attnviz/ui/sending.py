"""What the views in the browser need of a trace: whole maps where they are small, single lines where they are not."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from attnviz.analysis.pooled import Pooled, pooled
from attnviz.analysis.strongest import Strongest, strongest
from attnviz.trace import AttentionTrace
from attnviz.ui import cache, state
from attnviz.ui.components.lines import MOST_KEYS, MOST_WHOLE
from attnviz.ui.components.map import MOST_PIXELS
from attnviz.ui.components.selection import Place, Shared, line_name
from attnviz.ui.view import View
from attnviz.workers import workers_of_one_core

MOST_AT_ONCE = 100_000
"""Cells: with at most so many in all heads together, every head is sent, and opens without asking."""

MOST_SHOWN = 600_000
"""Cells of the shown heads that are sent as maps; the mean of more is sent line by line."""

MOST_TOKENS = 512
"""Up to so many tokens a side a head is sent, and drawn by Plotly, as a whole."""

MOST_BESIDE = 64
"""Up to so many tokens a side whole maps are drawn side by side."""

MOST_IN_MEAN = 60_000_000
"""Cells of the shown heads that are read for the mean of a line; of more, the open head alone is shown."""


def all_heads(view: View) -> list[Place]:
    """Return every layer and head of the role in view."""
    return [
        (layer, head) for layer in view.trace.layers(view.role) for head in range(view.trace.heads(layer, view.role))
    ]


def marked(view: View) -> list[Place]:
    """Return the marked heads that this trace has."""
    there = set(all_heads(view))
    return [place for place in state.marked_heads(state.get("marked")) if place in there]


def shown_heads(view: View) -> list[Place]:
    """Return the heads whose lines are drawn, and whose mean lies behind the words; at least the open one."""
    places = _wanted_heads(view)
    return places if len(places) * cells(view) <= MOST_IN_MEAN else [view.place]


def too_many_for_a_mean(view: View) -> str:
    """Return a sentence where the open head alone is shown in the place of those asked for; else nothing."""
    wanted = _wanted_heads(view)
    if len(wanted) * cells(view) <= MOST_IN_MEAN:
        return ""
    return f"{len(wanted)} heads of this length are too many for a mean: the open head is shown. Mark fewer heads."


def _wanted_heads(view: View) -> list[Place]:
    return heads_over(view, state.get("over"))


def heads_over(view: View, over: str) -> list[Place]:
    """Return the heads that one of `state.OVER` names; at least the open one."""
    match over:
        case state.MARKED:
            return marked(view) or [view.place]
        case state.THIS_LAYER:
            return [(view.layer, head) for head in range(view.trace.heads(view.layer, view.role))]
        case state.EVERY_HEAD:
            return all_heads(view)
    return [view.place]


def cells(view: View) -> int:
    """Return the cells of one map."""
    return len(view.shown.query_tokens(view.role)) * len(view.shown.key_tokens(view.role))


def longest(view: View) -> int:
    """Return the tokens of the longer side of a map."""
    return longest_of(view.shown, view.role)


def longest_of(trace: AttentionTrace, role: str) -> int:
    """Return the tokens of the longer side of the maps of a role."""
    return max(len(trace.query_tokens(role)), len(trace.key_tokens(role)))


def is_long(view: View) -> bool:
    """Whether a map is too large to be drawn by Plotly."""
    return longest(view) > MOST_TOKENS


class Grid(NamedTuple):
    """Every head of a role in small.

    Attributes:
        pictures: uint8 [layer, head, size, size].
        masks: uint8 [layer, size, size], 0 where nothing is allowed.
        statistics: a row per head, of the whole trace, whatever is hidden in the pictures.
    """

    pictures: Tensor
    masks: Tensor
    statistics: pd.DataFrame


def grid(view: View, most: int) -> Grid:
    """Return every head in at most so many pixels a side."""
    size = min(most, longest(view))

    def read() -> Grid:
        shown, role = view.shown, view.role
        return Grid(shown.thumbnails(role, size), shown.allowed_thumbnails(role, size), view.trace.statistics(role))

    return cache.reading(("grid", view.name, size), read)


def overview(view: View) -> Pooled:
    """Return the open head in as many pixels as a screen has."""
    key = ("overview", view.name, view.place)
    return cache.reading(key, lambda: pooled(view.shown.layer(view.layer, view.role), view.head, MOST_PIXELS))


def strongest_lines(view: View) -> dict[Place, Strongest] | None:
    """Return the strongest cells of each shown head; None where whole maps are shared and lines are made of these."""
    if longest(view) <= MOST_WHOLE:
        return None

    def read(place: Place) -> Strongest:
        return strongest(head_map(view.shown, *place, view.role), MOST_KEYS)

    places = shown_heads(view)
    return {place: cache.reading(("strongest", view.name, place), partial(read, place)) for place in places}


def chosen_token(view: View) -> tuple[str, int] | None:
    """Return the side and position of the token a person has chosen; None where that is none of this text."""
    at, side = state.get("token"), state.get("side")
    tokens = view.shown.query_tokens(view.role) if side == "query" else view.shown.key_tokens(view.role)
    return (side, at) if 0 <= at < len(tokens) else None


def last_query(view: View) -> tuple[str, int]:
    """Return the token that is looked at where none is chosen and no whole map is there to choose by."""
    return "query", len(view.shown.query_tokens(view.role)) - 1


def what_is_shared(view: View) -> Shared:
    """Return what the views need of the trace in view, and what is chosen in it."""
    queries, keys = view.shown.query_tokens(view.role), view.shown.key_tokens(view.role)
    shown, first, pinned = shown_heads(view), last_query(view), chosen_token(view)
    whole = _sent_whole(view, shown)
    maps = cache.reading(("maps", view.name, *whole), lambda: _maps(view, whole))
    token = pinned or first
    known = all(place in maps for place in shown)
    lines = {} if known else {line_name(shown, *token): mean_line(view, shown, *token)}
    same = queries is keys or (view.role != "cross" and queries.labels == keys.labels)
    return Shared(view.name, queries, keys, same, view.place, shown, marked(view), pinned, first, maps, lines)


def _sent_whole(view: View, shown: list[Place]) -> list[Place]:
    """Return the heads whose maps are sent whole."""
    everyone, size = all_heads(view), cells(view)
    if size * len(everyone) <= MOST_AT_ONCE:
        return everyone
    if size * len(shown) <= MOST_SHOWN:
        return list(dict.fromkeys([*shown, view.place]))
    return [] if is_long(view) else [view.place]


def _maps(view: View, places: list[Place]) -> dict[Place, Tensor]:
    """Return whole maps, read by threads that stay: those of Streamlit live for a run, and start torch's anew each."""

    def read(place: Place) -> Tensor:
        return head_map(view.shown, *place, view.role)

    return dict(zip(places, workers_of_one_core().map(read, places), strict=True))


def head_map(trace: AttentionTrace, layer: int, head: int, role: str) -> Tensor:
    """Return the weights of a head, float32 [query, key], NaN where the mask forbids the cell."""
    allowed: Tensor = trace.allowed(layer, role, head=head)
    return trace.weights(layer, head, role).masked_fill(~allowed.cpu(), torch.nan)


def mean_line(view: View, places: list[Place], side: str, at: int) -> Tensor:
    """Return what a token gives to each key (side "query") or gets from each query, float32, in the mean of some heads.

    NaN where the mask of any of them forbids it.
    """
    key = ("line", view.name, *places, side, at)
    return cache.reading(key, lambda: workers_of_one_core().submit(_mean_line, view, places, side, at).result())


def _mean_line(view: View, places: list[Place], side: str, at: int) -> Tensor:
    rows, columns = (slice(at, at + 1), slice(None)) if side == "query" else (slice(None), slice(at, at + 1))
    total = torch.zeros(1)
    for layer, head in places:
        weights = view.shown.weights(layer, head, view.role, rows, columns).flatten()
        allowed = view.shown.layer(layer, view.role).allowed(rows, columns, head).cpu().flatten()
        total = total + weights.masked_fill(~allowed, torch.nan)
    return total / len(places)
