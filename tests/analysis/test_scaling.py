"""What random queries and keys give, against what theory and torch's own gradients say."""

import math

import pytest
import torch

from attnviz.analysis.scaling import DIMENSIONS, score_spread, softmax_gradient
from attnviz.errors import OptionError


@pytest.fixture(scope="module")
def table():
    return score_spread(seed=3)


def test_the_variance_is_d_and_scaled_it_is_one(table):
    assert DIMENSIONS == (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    for scaled, part in table.groupby("scaled"):
        assert part["dimension"].tolist() == list(DIMENSIONS)
        expected = 1 if scaled else part["dimension"]
        away = (part["variance"] - expected).abs() / part["variance_error"]
        assert away.max() < 4  # standard errors
        assert (part["variance_error"] / part["variance"]).between(0.01, 0.15).all()


def test_scaled_and_not_are_of_the_same_vectors(table):
    plain, scaled = (table[table["scaled"] == which].reset_index() for which in (False, True))
    for name in ("variance", "variance_error"):
        assert (scaled[name] * scaled["dimension"]).tolist() == pytest.approx(plain[name].tolist(), rel=1e-5)


def test_without_scaling_weights_pile_up_and_the_gradient_goes(table):
    plain, scaled = (table[table["scaled"] == which].reset_index() for which in (False, True))
    assert (plain["entropy"].diff().dropna() < 0).all()
    assert plain["entropy"].iloc[-1] < 0.15
    assert plain["gradient"].iloc[-1] < 0.2 * scaled["gradient"].iloc[-1]
    assert scaled["entropy"].between(2.2, math.log(16)).all()
    assert scaled["gradient"].max() / scaled["gradient"].min() < 1.15
    assert (plain["gradient"] <= 0.5).all()


def test_the_standard_error_is_that_of_a_mean():
    runs = [score_spread([7], samples=50, keys=5, seed=seed) for seed in range(60)]
    for name in ("variance", "entropy", "gradient"):
        for at in (0, 1):
            means = torch.tensor([run[name][at] for run in runs])
            said = sum(run[f"{name}_error"][at] for run in runs) / len(runs)
            assert said == pytest.approx(float(means.std()), rel=0.3)


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_the_gradient_is_torchs(spread):
    scores = spread * torch.randn(3, 11, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for row, norm in zip(scores, softmax_gradient(scores.softmax(-1)), strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda logits: logits.softmax(-1), row)
        assert float(norm) == pytest.approx(float(jacobian.norm()), abs=1e-9)


def test_halves_have_the_largest_gradient():
    assert float(softmax_gradient(torch.tensor([0.5, 0.5, 0.0]))) == pytest.approx(0.5)
    assert float(softmax_gradient(torch.tensor([1.0, 0.0, 0.0]))) == 0


def test_a_seed_is_the_whole_of_chance():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = score_spread([3, 5], seed=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.equals(score_spread([3, 5], seed=2))
    assert not first.equals(score_spread([3, 5], seed=3))


@pytest.mark.parametrize("options", [{"dimensions": [0]}, {"samples": 1}, {"keys": 1}])
def test_too_little_is_said(options):
    with pytest.raises(OptionError, match="dimensions of 1 or more and at least 2 samples and keys"):
        score_spread(**options)
