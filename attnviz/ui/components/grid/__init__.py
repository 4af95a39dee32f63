"""Every layer × head as a grid of small pictures on one canvas; a click or a key opens one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from attnviz.plots.theme import Ink
from attnviz.ui.components import colours, declare, pack


@dataclass(frozen=True)
class LayerRow:
    """One row of the grid.

    Attributes:
        number: the model's own number of the layer; numbers that are left out are shown as a gap.
        heads: how many heads the layer has.
        keyHeads: how many key-value heads; fewer where queries share keys in groups.
        note: what to say of the layer on hover.
    """

    number: int
    heads: int
    keyHeads: int
    note: str = ""


@dataclass(frozen=True)
class Statistic:
    """A number per head, as it is shown.

    Attributes:
        name: its column in the table.
        label: what a person reads.
        decimals: how many are shown.
        unit: what stands behind the number.
    """

    name: str
    label: str
    decimals: int = 2
    unit: str = ""


@dataclass(frozen=True)
class GridOptions:
    """How the grid is read.

    Attributes:
        order: "layer", or a statistic, the largest first.
        tint: "none", or a statistic whose strength is laid over the pictures.
        top: how many heads with the largest tint or order stand out; 0 for none.
    """

    order: str = "layer"
    tint: str = "none"
    top: int = 0


TOPS = (0, 5, 10, 20)


def render_grid(
    pictures: Sequence[Tensor],
    masks: Tensor,
    rows: Sequence[LayerRow],
    table: pd.DataFrame,
    statistics: Sequence[Statistic],
    *,
    options: GridOptions,
    ink: Ink,
    key: str = "grid",
) -> None:
    """Show the grid; what a person opens or marks is told by the component "selection".

    Args:
        pictures: per layer, uint8 [head, size, size], 255 = weight 1.
        masks: uint8 [layer, size, size], 0 where no cell under the pixel is allowed.
        rows: what is known of each layer, rising by number.
        table: a row per head in the order of the pictures, with the columns of `statistics`.
        statistics: what a head can be ordered and tinted by, and what is said of it on hover.
        options: how the grid is read.
        ink: how strong the ink of a weight is.
        key: of the component.
    """
    header: dict[str, Any] = colours(ink) | {
        "size": masks.shape[-1],
        "layers": [asdict(row) for row in rows],
        "statistics": [asdict(statistic) for statistic in statistics],
        "options": asdict(options),
        "label": "Every head: arrow keys move, Enter opens, M marks",
    }
    values = np.column_stack([table[statistic.name].to_numpy(np.float32) for statistic in statistics])
    pixels = np.concatenate([picture.numpy().ravel() for picture in pictures])
    declare("grid", _html(statistics))(key=key, data=pack(header, [masks.numpy(), pixels, values]))


def _html(statistics: Sequence[Statistic]) -> str:
    names = {statistic.name: statistic.label for statistic in statistics}
    tops = {str(top): f"top {top}" if top else "none" for top in TOPS}
    return f"""
    <div class="heads">
      <div class="bar">
        <label>order <select name="order">{_options({"layer": "layer"} | names)}</select></label>
        <label>tint <select name="tint">{_options({"none": "none"} | names)}</select></label>
        <label>stand out <select name="top">{_options(tops)}</select></label>
      </div>
      <div class="grid" role="application" tabindex="0">
        <canvas class="all"></canvas>
        <div class="card" hidden><div class="name"></div><canvas></canvas><dl></dl></div>
        <span class="spoken" aria-live="polite"></span>
      </div>
      <div class="tint" hidden><i></i><span></span></div>
    </div>"""


def _options(names: Mapping[str, str]) -> str:
    return "".join(f'<option value="{escape(value)}">{escape(text)}</option>' for value, text in names.items())
