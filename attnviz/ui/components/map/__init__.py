"""The map of one long head on a canvas: an overview at once, exact numbers tile by tile as a person looks closer.

The overview and the tiles are two mounts of one script, so that asking for a tile runs a fragment and sends the tile
alone. An overview has 8 bits a pixel: `encoded` spends them on the root of the weight, as most weights of a long text
are below the 1/255 that equal steps would show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st
from torch import Tensor

from attnviz.analysis.pooled import Pooled
from attnviz.plots.theme import Ink
from attnviz.ui.components import colours, declare, pack

MOST_PIXELS = 1024
"""Pixels a side of an overview: what `pooled` is to be called with."""
TILE = 128
"""Cells a side of a tile of exact numbers, as layout.js has it."""
MOST_TILES = 6
"""Tiles of one answer, as layout.js asks for them."""
ANSWER_AGAIN = 2.0
"""Seconds for which a question for tiles is answered."""
ROUNDING = 1e-4
"""By how much of a step a root may seem to pass it, as it is not exact."""

HTML = """
<div class="map">
  <div class="bar">
    <p class="readout"></p>
    <div class="zoom" role="group" aria-label="Zoom">
      <button type="button" name="out" aria-label="Zoom out" title="Zoom out">−</button>
      <button type="button" name="in" aria-label="Zoom in" title="Zoom in">+</button>
      <button type="button" name="whole">Whole map</button>
    </div>
  </div>
  <canvas class="cells" role="application" tabindex="0"></canvas>
  <div class="under">
    <div class="legend"></div>
    <canvas class="small" aria-hidden="true"></canvas>
  </div>
  <p class="spoken" aria-live="polite"></p>
</div>
"""

ReadTile = Callable[[slice, slice], Tensor]
"""Returns the weights float32 [query, key] of some rows and columns, NaN where not allowed."""


@dataclass(frozen=True)
class Axis:
    """The tokens along one side.

    Attributes:
        labels: what a person reads of each.
        special: which of them are special tokens; one each.
    """

    labels: Sequence[str]
    special: Sequence[bool]


def render_map(
    overview: Pooled,
    read_tile: ReadTile,
    *,
    name: str,
    title: str,
    queries: Axis,
    keys: Axis,
    sink: Tensor | None = None,
    ink: Ink,
    key: str = "map",
) -> None:
    """Show the map of one head.

    Args:
        overview: what `pooled(layer, head, MOST_PIXELS)` returns.
        read_tile: reads exact weights; called when a person looks closer.
        name: tells this head of this trace from every other: the browser keeps tiles by it.
        title: what the map shows, such as "Layer 3, head 1", for those who hear it.
        queries: the tokens that attend.
        keys: the tokens attended to.
        sink: float32 [query], what each row gives to the attention sink, shown as a last column; None without one.
        ink: how strong the ink of a weight is.
        key: of the component; another one for each map on a page.
    """
    header = colours(ink) | {
        "kind": "overview",
        "channel": key,
        "name": name,
        "title": title,
        "query": _axis(queries),
        "key": _axis(keys),
        "restricted": overview.restricted,
        "hasSink": sink is not None,
    }
    arrays = [encoded(overview.shares if ink == "row" else overview.weights), overview.row_peaks.numpy()]
    arrays += [] if sink is None else [sink.float().numpy()]
    packed = pack(header, arrays)
    declare("map", HTML)(key=key, data=packed)
    _render_tiles(read_tile, name, key, len(queries.labels), len(keys.labels))


@st.fragment
def _render_tiles(read_tile: ReadTile, name: str, channel: str, rows: int, columns: int) -> None:
    """Send the tiles that the browser has asked for, in a run of this fragment alone.

    A run of the whole page may cut such a run short, or throw away what it has not sent yet, and a question is told
    once: whatever runs within `ANSWER_AGAIN` of it answers it.
    """
    key = f"hidden-{channel}-tiles"

    def keep() -> None:
        wanted = (st.session_state.get(key) or {}).get("wanted")
        st.session_state[f"{key}-asked"] = wanted and (wanted, time.monotonic())

    tiles, arrays = [], []
    for row, column in _places(st.session_state.get(f"{key}-asked"), name, rows, columns):
        tile = read_tile(_stretch(row, rows), _stretch(column, columns))
        tiles.append([row, column, *tile.shape])
        arrays.append(tile.float().numpy())
    header = {"kind": "tiles", "channel": channel, "name": name, "tiles": tiles, "run": time.time_ns()}
    declare("map", HTML)(key=key, height=0, data=pack(header, arrays), on_wanted_change=keep)


def encoded(overview: Tensor) -> np.ndarray:
    """Return an overview as uint8: 0 where nothing is allowed, else 1 + ⌈254·√weight⌉.

    What a code is read as is not below the weight, but for a millionth of rounding.
    """
    steps = np.ceil(254 * np.sqrt(overview.numpy().clip(0, 1)) - ROUNDING)
    return np.nan_to_num(steps + 1, nan=0).clip(0, 255).astype(np.uint8)


def _places(
    question: tuple[dict[str, Any], float] | None, name: str, rows: int, columns: int
) -> Iterator[tuple[int, int]]:
    """Yield the tiles asked for that exist; none where the question is old or about another map."""
    asked, when = question or ({}, 0.0)
    if asked.get("map") != name or time.monotonic() - when > ANSWER_AGAIN:
        return
    for row, column in asked.get("tiles", [])[:MOST_TILES]:
        if 0 <= row * TILE < rows and 0 <= column * TILE < columns:
            yield int(row), int(column)


def _stretch(tile: int, length: int) -> slice:
    return slice(tile * TILE, min((tile + 1) * TILE, length))


def _axis(axis: Axis) -> dict[str, Any]:
    special = [at for at, is_special in enumerate(axis.special) if is_special]
    return {"labels": list(axis.labels), "special": special}
