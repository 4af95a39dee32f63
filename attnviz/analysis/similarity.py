"""How alike vectors are, and how long."""

from __future__ import annotations

import torch
from torch import Tensor

from attnviz.errors import OptionError


def cosine_similarity(left: Tensor, right: Tensor | None = None) -> Tensor:
    """Return the cosine of the angle between every two vectors, float32 [left token, right token], −1 to 1.

    Args:
        left: [token, d_model].
        right: [token, d_model]; the vectors of `left` where left out.

    Returns:
        NaN where a vector is 0, which has no direction.
    """
    right = left if right is None else right
    return (_directions(left) @ _directions(right).T).float()


def nearest_tokens(vectors: Tensor, at: int, *, most: int = 5) -> list[tuple[int, float]]:
    """Return the positions whose vectors point most like that of one position, and their cosines, the largest first.

    Args:
        vectors: [token, d_model], those of one sentence.
        at: the position that is compared with all others.
        most: how many at most.

    Returns:
        At equal cosines the earlier position comes first. A vector of 0, which has no direction, has NaN and comes
        last; so has every one where that at `at` is 0.

    Raises:
        OptionError: no such position.
    """
    if not 0 <= at < len(vectors):
        raise OptionError(f"Expected a position of 0 to {len(vectors) - 1}, got {at}.")
    cosines = cosine_similarity(vectors[at : at + 1], vectors)[0]
    ranked = cosines.nan_to_num(-torch.inf).argsort(descending=True, stable=True).tolist()
    return [(other, float(cosines[other])) for other in ranked if other != at][:most]


def norms(vectors: Tensor) -> Tensor:
    """Return how long vectors are (Euclidean), float32 [..., token], of [..., token, d_model], in their own unit."""
    return vectors.detach().cpu().double().norm(dim=-1).float()


def _directions(vectors: Tensor) -> Tensor:
    vectors = vectors.cpu().double()
    return vectors / vectors.norm(dim=-1, keepdim=True)  # 0 / 0 is NaN
