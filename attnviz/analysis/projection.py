"""Where vectors of many dimensions stand in a plane or in space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.errors import OptionError, ShapeError

Method = Literal["pca", "tsne"]
FEWEST_NEIGHBOURED, MOST_NEIGHBOURED = 4, 1000  # vectors for t-SNE: fewer say nothing, more take half a minute
LARGEST_PERPLEXITY = 30.0  # scikit-learn's default, for 91 vectors or more
LARGE = 1_000_000  # numbers above which the strongest directions are sought alone


class Points(NamedTuple):
    """Several sets of vectors in one plane, or in one space."""

    sets: tuple[np.ndarray, ...]  # [token, dimension] each, float64
    explained: tuple[float, ...] | None  # share of the variance along each axis; None where axes have no such share


def project(sets: Sequence[Tensor], *, dimensions: int = 2, method: Method = "pca") -> Points:
    """Return where sets of vectors stand together, such as a trace's inputs, its outputs or its hidden states.

    "pca" projects all sets onto the principal components of all their vectors together (`sklearn.decomposition.PCA`),
    so that distances in the picture are at most the real ones; vectors that have that many dimensions keep their own
    axes. "tsne" (`sklearn.manifold.TSNE`, van der Maaten and Hinton 2008) keeps neighbours together: its axes have no
    meaning, nor have distances between groups or their sizes. Both give the same points again for the same vectors.

    Args:
        sets: [token, d_model] each, one d_model for all.
        dimensions: 2 or 3.
        method: "pca" or "tsne".

    Returns:
        The points of each set. `explained` is known for "pca" alone, and not where vectors keep their own axes.

    Raises:
        ShapeError: no set, or sets of different d_model.
        OptionError: another number of dimensions or method; too few or too many vectors for t-SNE.
    """
    widths = sorted({vectors.shape[-1] for vectors in sets})
    if len(widths) != 1 or any(vectors.dim() != 2 for vectors in sets):  # noqa: PLR2004
        raise ShapeError(f"Expected sets [token, d_model] of one d_model, got {[list(one.shape) for one in sets]}.")
    if dimensions not in (2, 3) or method not in METHODS:
        raise OptionError(f"Expected 2 or 3 dimensions by {list(METHODS)}, got {dimensions} by {method!r}.")
    together = torch.cat([vectors.detach().cpu().double() for vectors in sets]).numpy()
    points, explained = METHODS[method](together, dimensions)
    ends = np.cumsum([len(vectors) for vectors in sets])[:-1]
    return Points(tuple(np.split(points, ends)), explained)


def _principal_components(vectors: np.ndarray, dimensions: int) -> tuple[np.ndarray, tuple[float, ...] | None]:
    """Return the first principal components [token, dimension] and their shares of the variance."""
    from sklearn.decomposition import PCA

    if vectors.shape[1] == dimensions:
        return vectors, None
    points, shares = np.zeros((len(vectors), dimensions)), [0.0] * dimensions
    if not len(vectors) or (vectors == vectors[0]).all():  # one point, and no direction to project on
        return points, tuple(shares)
    kept = min(dimensions, *vectors.shape)
    large = vectors.size > LARGE and kept < min(vectors.shape)
    analysis = PCA(n_components=kept, svd_solver="arpack" if large else "full", random_state=0)
    points[:, :kept] = analysis.fit_transform(vectors)
    shares[:kept] = analysis.explained_variance_ratio_.tolist()
    return points, tuple(shares)


def _neighbours(vectors: np.ndarray, dimensions: int) -> tuple[np.ndarray, None]:
    """Return t-SNE's points [token, dimension]."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

    count = len(vectors)
    if not FEWEST_NEIGHBOURED <= count <= MOST_NEIGHBOURED:
        raise OptionError(
            f"t-SNE places {FEWEST_NEIGHBOURED} to {MOST_NEIGHBOURED} vectors, got {count}. Show "
            f"{'more' if count < FEWEST_NEIGHBOURED else 'fewer'} of them, or choose principal components."
        )
    if (vectors == vectors[0]).all():
        return np.zeros((count, dimensions)), None
    perplexity = min(LARGEST_PERPLEXITY, (count - 1) / 3)
    start = _principal_components(vectors, dimensions)[0]
    start = start / start[:, 0].std() * 1e-4  # as init="pca" does, for vectors of any width
    model = TSNE(n_components=dimensions, perplexity=perplexity, init=start.astype(np.float32), random_state=0)
    with threadpool_limits(1, user_api="openmp"):  # its threads wait for each other: beside other work, 5 s for 1 s
        return model.fit_transform(vectors).astype(np.float64), None


METHODS: dict[str, Callable[[np.ndarray, int], tuple[np.ndarray, tuple[float, ...] | None]]] = {
    "pca": _principal_components,
    "tsne": _neighbours,
}
