"""Why scores are divided by √d_k: what random queries and keys leave of the softmax and of its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnviz.attention import attention_scores
from attnviz.errors import OptionError

if TYPE_CHECKING:
    import pandas as pd

DIMENSIONS = tuple(2**power for power in range(1, 11))
"""From 2 to 1,024."""

SAMPLES, KEYS = 200, 16
MEASURES = ("variance", "entropy", "gradient")
FEWEST = 2
"""Samples and keys at least: a spread of one number has no meaning."""


def score_spread(
    dimensions: Sequence[int] = DIMENSIONS, *, samples: int = SAMPLES, keys: int = KEYS, seed: int = 0
) -> pd.DataFrame:
    """Return how scores, weights and gradients of random queries and keys change with the number of dimensions.

    Every sample is a query and its own keys, all of standard normal numbers. q·k then has mean 0 and variance d, and
    q·k/√d variance 1 (Vaswani et al. 2017, "Attention Is All You Need", footnote 4).

    Args:
        dimensions: numbers of dimensions d, 1 or more each.
        samples: queries for each d.
        keys: keys for each query.
        seed: of the random numbers; torch's own random state is neither read nor changed.

    Returns:
        Two rows for each d, `scaled` False and True, made of the same vectors: dimension, scaled, and each of these
        with its standard error (`variance_error` and so on), that of a mean over the samples:
        variance: of the scores of a row.
        entropy: of the row's weights, in nats, 0 (all on one key) to ln(keys).
        gradient: the Frobenius norm of the softmax's Jacobian diag(w) − wwᵀ, 0 (nothing reaches the scores) to 1/2.

    Raises:
        OptionError: a dimension below 1, or fewer than 2 samples or keys.
    """
    import pandas as pd

    if min(dimensions, default=1) < 1 or min(samples, keys) < FEWEST:
        raise OptionError(
            f"Expected dimensions of 1 or more and at least {FEWEST} samples and keys, got {list(dimensions)}, "
            f"{samples} and {keys}."
        )
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for dimension in dimensions:
        query = torch.randn(samples, 1, dimension, generator=generator)
        key = torch.randn(samples, keys, dimension, generator=generator)
        for scaled in (False, True):
            scores = attention_scores(query, key, dimension**-0.5 if scaled else 1.0)[:, 0]  # [sample, key]
            rows.append({"dimension": dimension, "scaled": scaled, **_measured(scores.double())})
    return pd.DataFrame(rows)


def softmax_gradient(weights: Tensor) -> Tensor:
    """Return the Frobenius norm of the softmax's Jacobian ∂w/∂s = diag(w) − wwᵀ, 0 to 1/2, [...] of [..., key].

    ‖diag(w) − wwᵀ‖² = Σ wᵢ² − 2 Σ wᵢ³ + (Σ wᵢ²)².
    """
    squares = weights.square().sum(-1)
    return (squares - 2 * weights.pow(3).sum(-1) + squares.square()).clamp_min(0).sqrt()


def _measured(scores: Tensor) -> dict[str, float]:
    """Return each measure of rows [sample, key], a mean over the samples, and its standard error."""
    weights = scores.softmax(-1)
    of_each_row = (scores.var(-1), torch.special.entr(weights).sum(-1), softmax_gradient(weights))
    found: dict[str, float] = {}
    for name, values in zip(MEASURES, of_each_row, strict=True):
        found |= {name: float(values.mean()), f"{name}_error": float(values.std() / len(values) ** 0.5)}
    return found
