"""Principal components against a singular value decomposition by hand; t-SNE by what it keeps together."""

import numpy as np
import pytest
import torch

from attnviz.analysis import projection
from attnviz.analysis.projection import project
from attnviz.errors import OptionError, ShapeError


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("width", [5, 7, 64])
def test_the_axes_are_the_strongest_directions_of_all_sets_together(width, dimensions, large, monkeypatch):
    monkeypatch.setattr(projection, "LARGE", 0 if large else 1_000_000)
    sets = [normal(5, width), 2 * normal(11, width, seed=1) + 1, normal(3, width, seed=2)]
    points = project(sets, dimensions=dimensions)
    together = torch.cat(sets).double().numpy()
    centred = together - together.mean(axis=0)
    _, values, directions = np.linalg.svd(centred, full_matrices=False)
    expected = centred @ directions[:dimensions].T
    got = np.concatenate(points.sets)
    assert [len(one) for one in points.sets] == [5, 11, 3]
    for axis in range(dimensions):
        sign = np.sign(got[:, axis] @ expected[:, axis])
        np.testing.assert_allclose(got[:, axis] * sign, expected[:, axis], atol=1e-9)
    np.testing.assert_allclose(points.explained, (values**2 / (values**2).sum())[:dimensions], atol=1e-12)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_as_many_dimensions_keep_their_own_axes(dimensions):
    before, after = normal(5, dimensions), normal(5, dimensions, seed=1)
    points = project([before, after], dimensions=dimensions)
    np.testing.assert_array_equal(points.sets[0], before)
    np.testing.assert_array_equal(points.sets[1], after)
    assert points.explained is None


@pytest.mark.parametrize("dimensions", [2, 3])
def test_one_dimension_lies_on_a_line(dimensions):
    points = project([normal(5, 1), normal(5, 1, seed=1)], dimensions=dimensions)
    assert points.sets[0].shape == points.sets[1].shape == (5, dimensions)
    assert not points.sets[0][:, 1:].any()
    assert points.explained == pytest.approx((1, *[0] * (dimensions - 1)))


def test_one_token_moves_along_the_first_axis():
    before, after = normal(1, 7), normal(1, 7, seed=1)
    points = project([before, after])
    assert np.linalg.norm(points.sets[1] - points.sets[0]) == pytest.approx((after - before).norm().item())
    assert points.explained == pytest.approx((1, 0))


@pytest.mark.parametrize("method", ["pca", "tsne"])
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3])
@pytest.mark.parametrize("shape", [(2, 1), (2, 7), (5, 7)])
def test_equal_vectors_are_one_point(value, shape, method):
    vectors = torch.full(shape, value, dtype=torch.float64)
    points = project([vectors, vectors], method=method)
    assert not any(one.any() for one in points.sets)
    assert points.explained == ((0, 0) if method == "pca" else None)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_tsne_keeps_neighbours_together_and_gives_the_same_again(dimensions):
    near, far = normal(7, 11), normal(5, 11, seed=1) + 50
    points = project([near, far], dimensions=dimensions, method="tsne")
    assert [one.shape for one in points.sets] == [(7, dimensions), (5, dimensions)]
    assert points.explained is None
    centres = [one.mean(axis=0) for one in points.sets]
    for one, own, other in zip(points.sets, centres, centres[::-1], strict=True):
        apart = np.linalg.norm(one - other, axis=1) - np.linalg.norm(one - own, axis=1)
        assert (apart > 0).all()
    again = project([near, far], dimensions=dimensions, method="tsne")
    assert all(np.array_equal(one, two) for one, two in zip(points.sets, again.sets, strict=True))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_tsne_takes_the_fewest_vectors_of_few_dimensions(width):
    (points,) = project([normal(4, width)], dimensions=3, method="tsne").sets
    assert points.shape == (4, 3)
    assert np.isfinite(points).all()


@pytest.mark.parametrize(("counts", "words"), [((2, 1), "4 to 1000 vectors, got 3. Show more"), ((1000, 1), "fewer")])
def test_too_few_or_too_many_for_tsne_is_said(counts, words):
    with pytest.raises(OptionError, match=words):
        project([normal(count, 5) for count in counts], method="tsne")


@pytest.mark.parametrize(
    ("sets", "options", "error", "words"),
    [
        ([normal(5, 3), normal(5, 4)], {}, ShapeError, r"\[5, 3\], \[5, 4\]"),
        ([], {}, ShapeError, r"\[\]"),
        ([normal(2, 5, 3)], {}, ShapeError, r"\[2, 5, 3\]"),
        ([normal(5, 7)], {"dimensions": 4}, OptionError, "got 4 by 'pca'"),
        ([normal(5, 7)], {"method": "umap"}, OptionError, "'pca', 'tsne'.*got 2 by 'umap'"),
    ],
)
def test_what_cannot_be_projected_is_said(sets, options, error, words):
    with pytest.raises(error, match=words):
        project(sets, **options)
