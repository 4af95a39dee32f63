"""Cosines against PyTorch's, the plane against a singular value decomposition by hand."""

import numpy as np
import pytest
import torch

from attnviz.analysis.similarity import cosine_similarity, project_to_plane
from attnviz.errors import ShapeError


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_cosines_of_every_pair():
    left, right = normal(5, 7), normal(3, 7, seed=1)
    expected = torch.nn.functional.cosine_similarity(left[:, None], right[None], dim=-1)
    torch.testing.assert_close(cosine_similarity(left, right), expected, atol=1e-6, rtol=0)
    assert torch.equal(cosine_similarity(left), cosine_similarity(left, left))


@pytest.mark.parametrize("length", [1e-30, 1, 1e30])
def test_a_vector_is_like_itself_however_long(length):
    similarity = cosine_similarity(normal(19, 23) * length)
    assert similarity.dtype == torch.float32
    assert (similarity.diagonal() == 1).all()
    assert similarity.abs().max() <= 1


def test_a_vector_of_zeros_has_no_direction():
    vectors = normal(3, 5)
    vectors[1] = 0
    expected = torch.tensor([[False, True, False], [True, True, True], [False, True, False]])
    assert torch.equal(cosine_similarity(vectors).isnan(), expected)


@pytest.mark.parametrize("dimension", [3, 7, 64])
def test_the_plane_holds_the_two_strongest_directions(dimension):
    before, after = normal(5, dimension), 2 * normal(5, dimension, seed=1) + 1
    plane = project_to_plane(before, after)
    both = torch.cat([before, after]).double().numpy()
    centred = both - both.mean(axis=0)
    _, values, directions = np.linalg.svd(centred, full_matrices=False)
    expected = centred @ directions[:2].T
    got = np.concatenate([plane.before, plane.after])
    for axis in range(2):
        sign = np.sign(got[:, axis] @ expected[:, axis])
        np.testing.assert_allclose(got[:, axis] * sign, expected[:, axis], atol=1e-9)
    np.testing.assert_allclose(plane.explained, (values**2 / (values**2).sum())[:2], atol=1e-12)


def test_two_dimensions_keep_their_own_axes():
    before, after = normal(5, 2), normal(5, 2, seed=1)
    plane = project_to_plane(before, after)
    np.testing.assert_array_equal(plane.before, before)
    np.testing.assert_array_equal(plane.after, after)
    assert plane.explained is None


def test_one_dimension_lies_on_a_line():
    plane = project_to_plane(normal(5, 1), normal(5, 1, seed=1))
    assert plane.before.shape == plane.after.shape == (5, 2)
    assert not plane.before[:, 1].any()
    assert plane.explained == pytest.approx((1, 0))


def test_one_token_moves_along_the_first_axis():
    before, after = normal(1, 7), normal(1, 7, seed=1)
    plane = project_to_plane(before, after)
    assert np.linalg.norm(plane.after - plane.before) == pytest.approx((after - before).norm().item())
    assert plane.explained == pytest.approx((1, 0))


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 7)])
def test_equal_vectors_are_one_point(value, shape):
    vectors = torch.full(shape, value, dtype=torch.float64)
    plane = project_to_plane(vectors, vectors)
    assert not plane.before.any()
    assert not plane.after.any()
    assert plane.explained == (0, 0)


def test_two_sets_of_different_shape_are_refused_with_both():
    with pytest.raises(ShapeError, match=r"\[5, 3\] and \[5, 4\]"):
        project_to_plane(normal(5, 3), normal(5, 4))
