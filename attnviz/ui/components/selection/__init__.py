"""What all views of a page share: the tokens, the weights in view, and what a person has chosen among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st
import torch
from torch import Tensor

from attnviz.tokens import TokenSequence
from attnviz.ui.components import declare, pack

Place = tuple[int, int]
"""A layer and a head."""


@dataclass(frozen=True)
class Shared:
    """What is sent to the browser.

    Attributes:
        trace: names the trace and the role; when it changes, the browser forgets what it holds.
        queries: the tokens that attend.
        keys: the tokens attended to.
        same: whether these are the same tokens, as in self-attention.
        open: the open head.
        shown: the heads whose lines are drawn, and whose mean lies behind the words.
        marked: the heads a person has marked.
        pinned: the side ("query" or "key") and position of the chosen token; None where none is chosen.
        first: which token is chosen where none is and `maps` says nothing.
        maps: float32 [query, key] per head, NaN where not allowed.
        lines: single lines of weights by `line_name`, where whole maps are too large.
    """

    trace: str
    queries: TokenSequence
    keys: TokenSequence
    same: bool
    open: Place
    shown: Sequence[Place]
    marked: Sequence[Place]
    pinned: tuple[str, int] | None
    first: tuple[str, int]
    maps: Mapping[Place, Tensor]
    lines: Mapping[str, Tensor]


def share_selection(shared: Shared, on: Mapping[str, Callable[[Any], None]], *, key: str = "hidden-selection") -> None:
    """Send it, and call a function of `on` with what a person has chosen in any view.

    Args:
        shared: what is sent.
        on: functions called with "open" {"layer", "head"}, "token" {"side", "at"} (at -1: none), "marked"
            [{"layer", "head"}, …], and with what single views say they tell.
        key: of the component.
    """
    arrays = [torch.stack(list(shared.maps.values())).numpy()] if shared.maps else [np.zeros(0, np.float32)]
    arrays += [line.numpy() for line in shared.lines.values()]
    header = {
        "trace": shared.trace,
        "tokens": {"query": _tokens(shared.queries), "key": _tokens(shared.keys)},
        "same": shared.same,
        "open": _head(shared.open),
        "shown": [_head(place) for place in shared.shown],
        "marked": [_head(place) for place in shared.marked],
        "pinned": _token(shared.pinned),
        "first": _token(shared.first),
        "heads": list(shared.maps),
        "lines": list(shared.lines),
    }
    packed = pack(header, arrays)

    def called(name: str) -> Callable[[], None]:
        def call() -> None:
            chosen = getattr(st.session_state[key], name)
            if chosen is not None:
                on[name](chosen)

        return call

    declare("selection")(key=key, height=0, data=packed, **{f"on_{name}_change": called(name) for name in on})


def line_name(places: Sequence[Place], side: str, at: int) -> str:
    """Return what a line of weights is called: the heads it is the mean of, the side and the position of its token."""
    return f"{','.join(f'{layer}.{head}' for layer, head in places)}.{side}.{at}"


@st.fragment
def answer_questions(
    trace: str,
    shown: Sequence[Place],
    read_line: Callable[[str, int], Tensor | None],
    *,
    key: str = "hidden-answers",
) -> None:
    """Send the weights of a token that the browser asks for, in a run of this fragment alone.

    Args:
        trace: as in `Shared`.
        shown: as in `Shared`.
        read_line: returns the weights of a side and a position, as `Shared.lines` has them; None where there is no
            such token.
        key: of the component.
    """
    asked = getattr(st.session_state.get(key), "wanted", None) or {}
    lines = {}
    if asked.get("trace") == trace:
        side, at = str(asked["token"]["side"]), int(asked["token"]["at"])
        line = read_line(side, at)
        lines = {} if line is None else {line_name(shown, side, at): line.numpy()}
    header = {"kind": "answer", "trace": trace, "lines": list(lines)}
    packed = pack(header, list(lines.values()))
    declare("selection")(key=key, height=0, data=packed, on_wanted_change=lambda: None)


def _tokens(tokens: TokenSequence) -> list[dict[str, Any]]:
    segments = tokens.segments or (None,) * len(tokens)
    return [
        {"label": label, "special": special, "segment": segment}
        for label, special, segment in zip(tokens.labels, tokens.is_special, segments, strict=True)
    ]


def _head(place: Place) -> dict[str, int]:
    return {"layer": place[0], "head": place[1]}


def _token(token: tuple[str, int] | None) -> dict[str, Any] | None:
    return None if token is None else {"side": token[0], "at": token[1]}
