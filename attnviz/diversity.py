"""Why several heads: one sentence through one head, then through more, and how unlike the heads are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attnviz.analysis.head_distances import head_divergences
from attnviz.embeddings import PretrainedEmbedding
from attnviz.experiment import Experiment, run_experiment
from attnviz.trace import AttentionTrace

if TYPE_CHECKING:
    import pandas as pd

COUNTS = (1, 2, 4, 8)


def with_heads(experiment: Experiment, heads: int) -> Experiment:
    """Return the same experiment through so many heads: a module of one head becomes its multi-head one."""
    return replace(experiment, module="multi-head cross" if experiment.crosses else "multi-head self", heads=heads)


def heads_diversity(
    experiment: Experiment, counts: Sequence[int] = COUNTS, *, embedding: PretrainedEmbedding | None = None
) -> pd.DataFrame:
    """Return how unlike the heads are when one experiment is divided among 1, 2, 4, 8 of them.

    The projections stay the same: with more heads each reads fewer of their columns.

    Args:
        experiment: what was chosen; its own number of heads does not count.
        counts: numbers of heads; those that do not divide the width of the vectors are left out.
        embedding: the loaded model, where vectors come from a pretrained one.

    Returns:
        heads, d_head (the width of one) and divergence: the mean Jensen–Shannon divergence of every two heads, in
        nats, 0 (all alike) to ln 2, see `attnviz.analysis.head_distances.head_divergences`; NaN for one head.

    Raises:
        TextError: see `run_experiment`.
        OptionError: see `run_experiment`.
    """
    import pandas as pd

    width = run_experiment(with_heads(experiment, 1), embedding).matrices["x"].shape[1]
    rows = []
    for heads in (count for count in counts if width % count == 0):
        trace = run_experiment(with_heads(experiment, heads), embedding).trace
        rows.append((heads, width // heads, mean_divergence(trace)))
    return pd.DataFrame(rows, columns=["heads", "d_head", "divergence"])


def mean_divergence(trace: AttentionTrace, role: str | None = None) -> float:
    """Return the mean Jensen–Shannon divergence of every two heads of a role, in nats; NaN for one head."""
    divergence = head_divergences(trace, role).divergence
    pairs = divergence[np.triu_indices(len(divergence), 1)]
    return float(np.nanmean(pairs)) if np.isfinite(pairs).any() else math.nan
