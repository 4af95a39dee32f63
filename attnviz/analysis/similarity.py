"""How alike vectors are, and where they stand in a plane."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.errors import ShapeError


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


def _directions(vectors: Tensor) -> Tensor:
    vectors = vectors.cpu().double()
    return vectors / vectors.norm(dim=-1, keepdim=True)  # 0 / 0 is NaN


class Plane(NamedTuple):
    """Two sets of vectors in one plane."""

    before: np.ndarray  # [token, 2]
    after: np.ndarray  # [token, 2]
    explained: tuple[float, float] | None  # share of the variance along each axis; None: the vectors' own two axes


def project_to_plane(before: Tensor, after: Tensor) -> Plane:
    """Return where inputs and outputs stand in one plane.

    Vectors of two dimensions keep their own axes. Others are projected onto the two principal components of
    both sets together (`sklearn.decomposition.PCA`), so that the two can be compared.

    Args:
        before: [token, d_model].
        after: [token, d_model].

    Raises:
        ShapeError: the two have different shapes.
    """
    if before.shape != after.shape:
        raise ShapeError(f"Expected two sets of one shape, got {list(before.shape)} and {list(after.shape)}.")
    both = torch.cat([before, after]).cpu().double().numpy()
    if both.shape[1] == 2:  # noqa: PLR2004
        plane, explained = both, None
    else:
        plane, explained = _principal_components(both)
    return Plane(plane[: len(before)], plane[len(before) :], explained)


def _principal_components(vectors: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Return the first two principal components [token, 2] and their shares of the variance."""
    from sklearn.decomposition import PCA

    kept = min(2, *vectors.shape)
    if (vectors == vectors[0]).all():  # all vectors equal: one point, and no direction to project on
        return np.zeros((len(vectors), 2)), (0.0, 0.0)
    analysis = PCA(n_components=kept, svd_solver="full")
    plane = np.zeros((len(vectors), 2))
    plane[:, :kept] = analysis.fit_transform(vectors)
    shares = [*analysis.explained_variance_ratio_.tolist(), 0.0][:2]
    return plane, (shares[0], shares[1])
