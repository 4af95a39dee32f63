"""The two sides of a comparison: A is what the sidebar says, B differs from it in some keys.

The key "b" holds what differs, written as a query string: `layer=2&model_head=5`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from attnviz.ui import state

OF_MODELS = ("pair", "target", "dtype", "revision")
OF_MODULES = ("module", "embedding", "heads", "dimension", "positions", "mask", "weights", "scale", "seed")
SIDED = (
    *("source", "checkpoint", "sentence", "role", "layer", "model_head", *OF_MODELS),
    *("text", "context", "model", "head", *OF_MODULES),
    "average",
)
"""The keys in which two sides may differ."""


class Sides:
    """What B is, beside A."""

    def __init__(self, default: Mapping[str, Any]) -> None:
        """Read in what B differs from A.

        Args:
            default: in what it differs before a person has chosen anything.
        """
        self.differing = _read(state.get("b")) if state.get("b") else dict(default)

    def read(self, key: str) -> Any:
        """Return the value of a key for side B."""
        return self.differing[key] if key in self.differing else state.get(key)

    def write(self, **values: Any) -> None:
        """Give B other values, the rest of what differs as it is; for a callback."""
        replace_b(**self.differing | values)

    def swap(self) -> None:
        """Let A and B change places; for a callback."""
        own = {key: state.get(key) for key in self.differing}
        state.set_values(**self.differing)
        replace_b(**own)

    def field(self, key: str) -> None:
        """Draw the widget of a key for side B."""
        field_, name = state.FIELDS[key], f"b-{key}"
        value = self.read(key)
        st.session_state[name] = float(value) if field_.kind == "number" else value
        state.draw(field_, f"{field_.label} (B)", key=name, help=field_.help, on_change=self._keep, args=(key,))

    def _keep(self, key: str) -> None:
        self.write(**{key: state.checked(key, st.session_state[f"b-{key}"])})


def replace_b(**values: Any) -> None:
    """Let B differ from A in these keys alone; for a callback."""
    state.set_values(b=urlencode({key: state.raw_of(value) for key, value in values.items()}))


def _read(written: str) -> dict[str, Any]:
    """Return what B differs in; what is no value of its key is left out."""
    found = parse_qsl(written, keep_blank_values=True)
    readable = {key: raw for key, raw in found if key in SIDED and state.readable(key, raw)}
    return {key: state.checked(key, state.read_raw(key, raw)) for key, raw in readable.items()}
