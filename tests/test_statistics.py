"""Statistics and thumbnails made block by block, against those of the full maps, made row by row."""

import math

import pytest
import torch
import torch.nn.functional as F
from layer_cases import KINDS, case

from attnviz import layers
from attnviz.layers import StoredLayer
from attnviz.rules import ScoreRule
from attnviz.statistics import STATISTICS, summarize

NAN = math.nan


@pytest.fixture(params=[None, 1], ids=["one block", "several blocks"])
def blocks(request, monkeypatch):
    if request.param is not None:
        monkeypatch.setattr(layers, "BLOCK_BYTES", request.param)


def mean(values):
    return sum(values) / len(values) if values else NAN


def neighbour(weights, allowed, rows, offset, step):
    """The mean weight on the key `step` after the query, over the live rows that have such a key."""
    pairs = [(row, row + offset + step) for row in rows if 0 <= row + offset + step < weights.shape[1]]
    return mean([float(weights[pair]) for pair in pairs]) if any(allowed[pair] for pair in pairs) else NAN


def naive_statistics(weights, allowed, special, *, offset, cross):
    """One head's statistics, in the words of their definitions."""
    rows = [row for row in range(len(weights)) if allowed[row].any()]
    listed = {row: weights[row].tolist() for row in rows}
    first = [listed[row][0] for row in rows]
    on_special = [sum(weight for weight, yes in zip(listed[row], special, strict=True) if yes) for row in rows]
    distance = [sum(w * abs(row + offset - key) for key, w in enumerate(listed[row])) for row in rows]
    return [
        mean([-sum(w * math.log(w) for w in listed[row] if w > 0) for row in rows]),
        NAN if cross else mean(distance),
        *(NAN if cross else neighbour(weights, allowed, rows, offset, step) for step in (0, -1, 1)),
        mean(first),
        mean(on_special) if any(special) else NAN,
        mean([max(listed[row]) for row in rows]),
    ]


def specials(keys):
    return torch.tensor([position in (0, keys - 1) for position in range(keys)])


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("kind", KINDS)
def test_statistics_equal_those_of_the_full_maps(kind):
    layer, _, allowed, weights, _ = case(kind)
    special = specials(layer.shape[2])
    found = summarize(layer, special=special, size=5).statistics
    options = {"offset": layer.rule.offset, "cross": layer.role == "cross"}
    expected = [naive_statistics(weights[h], allowed[h], special, **options) for h in range(layer.shape[0])]
    assert (found.dtype, found.shape) == (torch.float32, (layer.shape[0], len(STATISTICS)))
    torch.testing.assert_close(found, torch.tensor(expected), atol=2e-6, rtol=1e-5, equal_nan=True)

    stored = StoredLayer(layer=2, role=layer.role, rule=layer.rule, stored=weights.float())
    torch.testing.assert_close(summarize(stored, special=special, size=5).statistics, found, equal_nan=True)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("kind", KINDS)
def test_thumbnails_equal_the_pooled_full_maps(kind):
    layer, *_, weights, _ = case(kind)
    for size in (1, 5, 32, 37, 41):
        found = summarize(layer, special=specials(layer.shape[2]), size=size).thumbnails
        expected = F.adaptive_max_pool2d(weights.float(), size)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def by_name(layer, special=None):
    special = torch.zeros(layer.shape[2], dtype=torch.bool) if special is None else torch.tensor(special)
    row = summarize(layer, special=special, size=3).statistics[0].tolist()
    return {name: round(value, 4) for name, value in zip(STATISTICS, row, strict=True)}


def stored(weights, role="encoder", **rule):
    return StoredLayer(
        layer=0, role=role, rule=ScoreRule(scaling=1.0, **rule), stored=torch.tensor(weights, dtype=torch.float32)[None]
    )


def test_statistics_by_hand():
    found = by_name(stored([[0.5, 0.5, 0], [0.25, 0.5, 0.25], [1, 0, 0]]), [True, False, False])
    assert found == {
        "entropy": round((math.log(2) + 1.5 * math.log(2) + 0) / 3, 4),
        "distance": round((0.5 + 0.5 + 2) / 3, 4),
        "self_weight": round((0.5 + 0.5 + 0) / 3, 4),
        "previous_weight": (0.25 + 0) / 2,
        "next_weight": (0.5 + 0.25) / 2,
        "first_weight": round((0.5 + 0.25 + 1) / 3, 4),
        "special_weight": round((0.5 + 0.25 + 1) / 3, 4),
        "peak_weight": round((0.5 + 0.5 + 1) / 3, 4),
    }


def names_without_meaning(found):
    return {name for name, value in found.items() if math.isnan(value)}


def test_what_has_no_meaning_is_nan():
    one = by_name(stored([[1.0]]))
    assert (one["entropy"], one["distance"], one["self_weight"], one["peak_weight"]) == (0, 0, 1, 1)
    assert names_without_meaning(one) == {"previous_weight", "next_weight", "special_weight"}
    causal = by_name(stored([[1, 0], [0.5, 0.5]], role="decoder", causal=True))
    assert names_without_meaning(causal) == {"next_weight", "special_weight"}
    cross = by_name(stored([[1, 0], [0.5, 0.5]], role="cross"), [True, False])
    assert names_without_meaning(cross) == {"distance", "self_weight", "previous_weight", "next_weight"}
    masked = by_name(stored([[0, 0], [0, 0]], mask=torch.zeros(2, 2, dtype=torch.bool)), [True, False])
    assert names_without_meaning(masked) == set(STATISTICS)


def test_a_uniform_head_has_the_largest_entropy():
    found = by_name(stored(torch.full((19, 19), 1 / 19).tolist()))
    assert found["entropy"] == pytest.approx(math.log(19), abs=1e-4)
    assert found["distance"] == pytest.approx((19 - 1 / 19) / 3, abs=1e-4)
