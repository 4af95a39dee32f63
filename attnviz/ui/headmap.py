"""What a map of one head shows: its weights, with labels, mask and sink."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from attnviz.ui.view import View

SINK = "sink"


@dataclass(frozen=True)
class HeadMap:
    """A head's map.

    Attributes:
        weights: float32 [query, key]; the last column is the attention sink where there is one.
        allowed: bool of the same shape.
        query_labels: what stands at each row.
        key_labels: what stands at each column.
        has_sink: whether the last column is the sink.
    """

    weights: Tensor
    allowed: Tensor
    query_labels: tuple[str, ...]
    key_labels: tuple[str, ...]
    has_sink: bool

    @property
    def masked(self) -> Tensor:
        """The weights, NaN where not allowed."""
        return self.weights.masked_fill(~self.allowed, torch.nan)

    def table(self) -> pd.DataFrame:
        """Return the weights as a table; position and token name a row, so that equal tokens stay apart."""
        rows = [f"{at} {label}" for at, label in enumerate(self.query_labels)]
        columns = [f"{at} {label}" for at, label in enumerate(self.key_labels)]
        if self.has_sink:
            columns[-1] = SINK  # which has no position
        return pd.DataFrame(self.masked.numpy(), index=rows, columns=columns).round(6)


def read_head(view: View, head: int) -> HeadMap:
    """Return the map of a head of the layer in view."""
    trace, layer, role = view.shown, view.layer, view.role
    weights, labels = trace.weights(layer, head, role), trace.key_tokens(role).labels
    allowed: Tensor = trace.allowed(layer, role, head=head)
    sink = trace.sink_weights(layer, head, role)
    if sink is not None:
        weights = torch.cat([weights, sink[:, None]], dim=1)
        allowed = torch.cat([allowed, torch.ones(len(allowed), 1, dtype=torch.bool)], dim=1)
        labels = (*labels, SINK)
    return HeadMap(weights, allowed, trace.query_tokens(role).labels, labels, sink is not None)
