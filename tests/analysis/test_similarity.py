"""Cosines against PyTorch's, lengths against NumPy's."""

import math

import numpy as np
import pytest
import torch

from attnviz.analysis.similarity import cosine_similarity, nearest_tokens, norms
from attnviz.errors import OptionError


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


@pytest.mark.parametrize("at", [0, 3, 18])
def test_the_nearest_come_first_and_without_the_token_itself(at):
    vectors = normal(19, 7)
    cosines = torch.nn.functional.cosine_similarity(vectors, vectors[at], dim=-1)
    expected = [int(other) for other in cosines.argsort(descending=True) if int(other) != at]
    found = nearest_tokens(vectors, at, most=18)
    assert [other for other, _ in found] == expected
    np.testing.assert_allclose([cosine for _, cosine in found], cosines[expected], atol=1e-6)
    assert nearest_tokens(vectors, at, most=3) == found[:3]
    assert len(nearest_tokens(vectors, at)) == 5


def test_of_equal_cosines_the_earlier_comes_first_and_zeros_last():
    vectors = torch.tensor([[1.0, 0], [0, 0], [2, 0], [3, 0], [0, -1], [-1, 0]])
    found = nearest_tokens(vectors, 2, most=9)
    assert found[:4] == [(0, 1.0), (3, 1.0), (4, 0.0), (5, -1.0)]
    assert found[4][0] == 1
    assert math.isnan(found[4][1])
    assert all(math.isnan(cosine) for _, cosine in nearest_tokens(vectors, 1))
    assert nearest_tokens(vectors[:1], 0) == []


@pytest.mark.parametrize("at", [-1, 5])
def test_a_position_that_is_not_there_is_said(at):
    with pytest.raises(OptionError, match=f"0 to 4, got {at}"):
        nearest_tokens(normal(5, 3), at)


@pytest.mark.parametrize("scale", [1, 1e30])
def test_norms_of_any_number_of_sets(scale):
    vectors = normal(3, 5, 7) * scale
    expected = np.sqrt((vectors.double().numpy() ** 2).sum(axis=-1))
    assert norms(vectors).dtype == torch.float32
    np.testing.assert_allclose(norms(vectors), expected, rtol=1e-6)
    assert torch.equal(norms(vectors[1]), norms(vectors)[1])
