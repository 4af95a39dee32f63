"""Every layer × head as a grid of small pictures on one canvas; a click or a key opens one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import streamlit as st
from torch import Tensor

from attnviz.plots.theme import DARK, LIGHT, Ink, sequential_scale

SCRIPT = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
HTML = (
    '<div class="heads" role="application" tabindex="0"><canvas></canvas>'
    '<span class="spoken" aria-live="polite"></span></div>'
)
CSS = """
.heads {outline-offset: 2px; overflow-x: auto; max-width: 100%;}
.heads:focus-visible {outline: 2px solid var(--st-primary-color);}
.spoken {position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);}
"""


@dataclass(frozen=True)
class LayerRow:
    """One row of the grid.

    Attributes:
        number: the model's own number of the layer.
        label: what stands before the row.
        heads: how many heads the layer has.
        keyHeads: how many key-value heads; fewer where queries share keys in groups.
        note: what to say of the layer on hover.
    """

    number: int
    label: str
    heads: int
    keyHeads: int
    note: str = ""


def render_thumbnails(
    pictures: Sequence[Tensor],
    masks: Tensor,
    rows: Sequence[LayerRow],
    *,
    open_layer: int,
    open_head: int,
    on_open: Callable[[int, int], None],
    ink: Ink,
    key: str = "thumbnails",
) -> None:
    """Show the grid.

    Args:
        pictures: per layer, uint8 [head, size, size], 255 = weight 1.
        masks: uint8 [layer, size, size], 0 where no cell under the pixel is allowed.
        rows: what is known of each layer.
        open_layer: the layer of the open head.
        open_head: the open head.
        on_open: called with layer and head when a person opens one.
        ink: how strong the ink of a weight is.
        key: of the component.
    """
    size = masks.shape[-1]
    pixels = masks.numpy().tobytes() + b"".join(picture.numpy().tobytes() for picture in pictures)
    header = {
        "size": size,
        "layers": [asdict(row) for row in rows],
        "labelWidth": 14 + 6 * max(len(row.label) for row in rows),
        "open": {"layer": open_layer, "head": open_head},
        "light": sequential_scale(LIGHT, ink),
        "dark": sequential_scale(DARK, ink),
        "version": f"{zlib.crc32(pixels)} {open_layer} {open_head} {ink}",
        "label": "Every head: arrow keys move, Enter opens",
    }
    text = json.dumps(header).encode()

    def opened() -> None:
        chosen = st.session_state[key].open
        if chosen:
            on_open(int(chosen["layer"]), int(chosen["head"]))

    component = st.components.v2.component("attnviz_thumbnails", html=HTML, css=CSS, js=SCRIPT)
    component(key=key, data=len(text).to_bytes(4, "little") + text + pixels, on_open_change=opened)
