"""One picture of BertViz or CircuitsVis as a page of HTML; run by `frontend.py` in a process of its own.

    python benchmarks/frontend_peers.py TOOL LAYERS HEADS TOKENS --peers FOLDER --output FILE

Writes the HTML that the tool itself returns, with the addresses of its scripts turned to this machine, and prints as
JSON how long the tool took to make it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from frontend_weights import all_weights, make_trace, words

FAR = re.compile(r"https://[\w.]+/ajax/libs/")
"""Where BertViz has its scripts from; `frontend.py` serves the same files under /libs/."""


def bertviz_model_view(weights: list[Tensor], tokens: list[str]) -> str:
    """Return every head of every layer, as BertViz's notebooks call it."""
    from bertviz import model_view

    return model_view(weights, tokens, html_action="return").data


def bertviz_head_view(weights: list[Tensor], tokens: list[str]) -> str:
    """Return the lines of all heads of the first layer; no other layer is sent, which is less than its default."""
    from bertviz import head_view

    return head_view(weights, tokens, include_layers=[0], html_action="return").data


def circuitsvis_heads(weights: list[Tensor], tokens: list[str]) -> str:
    """Return the heads of all layers in one row after another; the page that it shows where its CDN is out of reach."""
    from circuitsvis.attention import attention_heads

    heads = [one for layer in weights for one in layer[0]]
    names = [f"L{layer}H{head}" for layer, one in enumerate(weights) for head in range(one.shape[1])]
    return attention_heads([one.tolist() for one in heads], tokens, names, mask_upper_tri=False).local_src


def circuitsvis_pattern(weights: list[Tensor], tokens: list[str]) -> str:
    """Return one head large."""
    from circuitsvis.attention import attention_pattern

    return attention_pattern(tokens, weights[0][0, 0], mask_upper_tri=False).local_src


PICTURES: dict[str, Callable[[list[Tensor], list[str]], str]] = {
    "bertviz model_view": bertviz_model_view,
    "bertviz head_view": bertviz_head_view,
    "circuitsvis attention_heads": circuitsvis_heads,
    "circuitsvis attention_pattern": circuitsvis_pattern,
}


def main() -> None:
    """Make one picture and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=PICTURES)
    parser.add_argument("shape", nargs=3, type=int, metavar=("LAYERS", "HEADS", "TOKENS"))
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    sys.path.append(str(options.peers / "python"))  # last: what the project pins comes first
    weights, tokens = all_weights(make_trace(*options.shape)), words(options.shape[2])
    PICTURES[options.tool]([layer[..., :2, :2] for layer in weights], tokens[:2])  # imports are not the tool's work
    start = time.perf_counter()
    html = PICTURES[options.tool](weights, tokens)
    seconds = time.perf_counter() - start
    options.output.write_text('<!doctype html><meta charset="utf-8">' + FAR.sub("/libs/", html), encoding="utf-8")
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
