"""Parts of a page that Streamlit does not have, a folder each: a Python face, a script in the browser, a style.

Scripts are plain JavaScript modules that import each other by relative paths, so that Node runs the same files in
tests. Streamlit takes the text of one module and serves no files beside it: `declare` turns each import into a data:
address. A browser loads equal addresses once, so that what `shared.js` holds is held once in a page.
"""

from __future__ import annotations

import base64
import functools
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from attnviz.plots.theme import DARK, LIGHT, Ink, Theme

HERE = Path(__file__).parent
ALIGNMENT = 8
_IMPORT = re.compile(r'(?<=from )"(\.[^"]+)"')


def declare(name: str, html: str | None = None) -> Any:
    """Return Streamlit's component of the folder `name`; to be called in each run.

    Args:
        name: the folder, which holds `name.js` and perhaps `name.css`.
        html: what the component starts with.
    """
    style = HERE / name / f"{name}.css"
    css = _text(HERE / "controls.css") + _text(style) if style.exists() else None
    return st.components.v2.component(f"attnviz_{name}", html=html, css=css, js=_module(HERE / name / f"{name}.js"))


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def _module(path: Path) -> str:
    """Return a script whose imports are data: addresses of the scripts they name."""

    def inline(found: re.Match[str]) -> str:
        text = _module((path.parent / found[1]).resolve())
        return '"data:text/javascript;base64,' + base64.b64encode(text.encode()).decode() + '"'

    return _IMPORT.sub(inline, _text(path))


def pack(header: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> bytes:
    """Return what `unpack` in shared.js reads: the length of a JSON header, the header, and a block of numbers.

    Args:
        header: anything JSON holds.
        arrays: float32, uint16 or uint8, each in C order; the header says where they are, padded to 8 bytes. It gets
            a "version" too, by which a script knows that nothing has changed.
    """
    places, blocks, offset, version = [], [], 0, zlib.crc32(json.dumps(header).encode())
    for array in arrays:
        block = np.ascontiguousarray(array).tobytes()
        places.append({"type": array.dtype.name, "shape": array.shape, "offset": offset})
        blocks.append(block + bytes(-len(block) % ALIGNMENT))
        offset += len(blocks[-1])
        version = zlib.crc32(block, version)
    text = json.dumps(header | {"arrays": places, "version": version}, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 4) % ALIGNMENT)
    return len(text).to_bytes(4, "little") + text + b"".join(blocks)


def colours(ink: Ink) -> dict[str, Any]:
    """Return the part of a header that says how things are coloured, in light and in dark."""
    return {"ink": ink, "light": _colours(LIGHT), "dark": _colours(DARK)}


def _colours(theme: Theme) -> dict[str, Any]:
    names = ("text", "muted", "line", "accent", "page", "sequential")
    return {name: getattr(theme, name) for name in names}
