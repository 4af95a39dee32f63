"""The text itself, with the weight behind each token that the chosen token gives to it, or gets from it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from attnviz.plots.theme import Ink
from attnviz.ui.components import colours, declare, pack


def render_strip(*, over: str, choices: Sequence[str], one_layer: bool, ink: Ink, key: str = "strip") -> None:
    """Show the text of the component "selection", which also tells what a person chooses here.

    Args:
        over: which heads the weights are averaged over, one of `choices`.
        choices: what a person can average over.
        one_layer: whether there is just one layer, whose number need not be said.
        ink: how strong the ink of a weight is.
        key: of the component.
    """
    header = colours(ink) | {"over": over, "oneLayer": one_layer}
    declare("strip", _html(choices))(key=key, data=pack(header))


def _html(choices: Sequence[str]) -> str:
    options = "".join(f"<option>{escape(choice)}</option>" for choice in choices)
    return f"""
    <div class="strip">
      <div class="texts"></div>
      <div class="under">
        <p class="caption"></p>
        <div class="choices">
          <label>show <select name="side">
            <option value="query">what it attends to</option><option value="key">what attends to it</option>
          </select></label>
          <label>in <select name="over">{options}</select></label>
        </div>
      </div>
    </div>"""
