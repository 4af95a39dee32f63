"""What the views in the browser need of a trace: whole maps where they are small, single lines where they are not."""

from __future__ import annotations

import streamlit as st
import torch
from torch import Tensor

from attnviz.trace import AttentionTrace
from attnviz.ui import state
from attnviz.ui.components.selection import Place, Shared
from attnviz.ui.view import View

MOST_AT_ONCE = 100_000
"""Cells: with at most so many in all heads together, every head is sent, and opens without asking."""

MOST_SHOWN = 600_000
"""Cells of the shown heads that are sent as maps; the mean of more is sent line by line."""

MOST_TOKENS = 512
"""Up to so many tokens a side a head is sent, and drawn by Plotly, as a whole."""

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
    match state.get("over"):
        case state.MARKED:
            places = marked(view) or [view.place]
        case state.THIS_LAYER:
            places = [(view.layer, head) for head in range(view.trace.heads(view.layer, view.role))]
        case state.EVERY_HEAD:
            places = all_heads(view)
        case _:
            return [view.place]
    return places if len(places) * cells(view) <= MOST_IN_MEAN else [view.place]


def cells(view: View) -> int:
    """Return the cells of one map."""
    return len(view.trace.query_tokens(view.role)) * len(view.trace.key_tokens(view.role))


def is_long(view: View) -> bool:
    """Whether a map is too large to be sent, and drawn by Plotly, as a whole."""
    return max(len(view.trace.query_tokens(view.role)), len(view.trace.key_tokens(view.role))) > MOST_TOKENS


def what_is_shared(view: View) -> Shared:
    """Return what the views need of the trace in view, and what is chosen in it."""
    queries, keys = view.trace.query_tokens(view.role), view.trace.key_tokens(view.role)
    shown, first = shown_heads(view), ("query", len(queries) - 1)
    at, side = state.get("token"), state.get("side")
    pinned = (side, at) if 0 <= at < len(queries if side == "query" else keys) else None
    maps = {place: head_map(view.trace, *place, view.role) for place in _sent_whole(view, shown)}
    wanted = st.session_state.get("wanted-token")
    tokens = {pinned or first, *([wanted[1]] if wanted and wanted[0] == view.name else [])}
    missing = [] if all(place in maps for place in shown) else sorted(tokens)
    lines = {f"mean.{side}.{at}": mean_line(view, shown, side, at) for side, at in missing}
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


def head_map(trace: AttentionTrace, layer: int, head: int, role: str) -> Tensor:
    """Return the weights of a head, float32 [query, key], NaN where the mask forbids the cell."""
    allowed: Tensor = trace.allowed(layer, role, head=head)
    return trace.weights(layer, head, role).masked_fill(~allowed.cpu(), torch.nan)


def mean_line(view: View, places: list[Place], side: str, at: int) -> Tensor:
    """Return what a token gives to each key (side "query") or gets from each query, float32, in the mean of some heads.

    NaN where the mask of any of them forbids it.
    """
    rows, columns = (slice(at, at + 1), slice(None)) if side == "query" else (slice(None), slice(at, at + 1))
    total = torch.zeros(1)
    for layer, head in places:
        weights = view.trace.weights(layer, head, view.role, rows, columns).flatten()
        allowed = view.trace.layer(layer, view.role).allowed(rows, columns, head).cpu().flatten()
        total = total + weights.masked_fill(~allowed, torch.nan)
    return total / len(places)
