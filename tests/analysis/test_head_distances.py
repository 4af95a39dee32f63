"""Divergences of heads against SciPy's, pair by pair; the tree and the plane against what they are to keep."""

import math

import numpy as np
import pytest
import torch
from layer_cases import case
from scipy.cluster import hierarchy
from scipy.spatial.distance import jensenshannon, pdist, squareform

from attnviz.analysis import head_distances
from attnviz.analysis.comparison import js_divergence
from attnviz.analysis.head_distances import cluster, embed, head_divergences, nearest_heads
from attnviz.errors import OptionError
from attnviz.layers import StoredLayer
from attnviz.rules import ScoreRule
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace, Support

LN2 = math.log(2)


def trace_of(*layers, role="encoder"):
    """A trace of layers {number: weights [head, query, key] or a layer}."""
    kept = [
        layer
        if not isinstance(layer, tuple)
        else StoredLayer(layer=layer[0], role=role, rule=ScoreRule(1.0), stored=layer[1])
        for layer in layers
    ]
    roles = {layer.role: layer.shape for layer in kept}
    return AttentionTrace(
        kept,
        query_tokens={name: TokenSequence.numbered(shape[1]) for name, shape in roles.items()},
        key_tokens={name: TokenSequence.numbered(shape[2]) for name, shape in roles.items()},
        support=Support("module"),
    )


def maps(heads, queries, keys, seed=0):
    scores = 2 * torch.randn(heads, queries, keys, generator=torch.Generator().manual_seed(seed))
    return scores.softmax(-1)


def by_pairs(weights, rows=slice(None)):
    """Mean squared Jensen–Shannon distance of every two heads over the rows that both have, as SciPy has it."""
    weights = weights.double().numpy()[:, rows]
    lacking = np.clip(1 - weights.sum(-1, keepdims=True), 0, None)
    empty = weights.sum(-1) == 0
    full = np.concatenate([weights, lacking], axis=-1)
    expected = np.full((len(full), len(full)), math.nan)
    for i, a in enumerate(full):
        for j, b in enumerate(full):
            both = ~(empty[i] | empty[j])
            if both.any():
                expected[i, j] = (jensenshannon(a[both], b[both], axis=-1) ** 2).mean()
    return expected


@pytest.mark.parametrize(("queries", "keys"), [(13, 11), (1, 1), (1, 7), (5, 1)])
def test_every_two_heads_are_as_far_as_scipy_says(queries, keys):
    first, second = maps(3, queries, keys), maps(5, queries, keys, seed=1)
    found = head_divergences(trace_of((7, second), (2, first), role="cross"))
    assert found.places == (*((2, head) for head in range(3)), *((7, head) for head in range(5)))
    assert (found.rows, found.of_rows) == (queries, queries)
    assert found.divergence.dtype == np.float64
    assert np.array_equal(found.divergence, found.divergence.T)
    assert not found.divergence.diagonal().any()
    np.testing.assert_allclose(found.divergence, by_pairs(torch.cat([first, second])), atol=1e-7)
    np.testing.assert_allclose(found.distance**2, found.divergence, atol=1e-12)


@pytest.mark.parametrize("kind", ["causal", "sink", "empty rows", "mask per head", "cross", "sink and empty rows"])
def test_masks_and_sinks_count_as_in_a_comparison(kind):
    layer = case(kind).layer
    trace = trace_of(layer)
    found = head_divergences(trace)
    for one in range(layer.shape[0]):
        for other in range(layer.shape[0]):
            nats = js_divergence(trace.weights(2, one), trace.weights(2, other)).nanmean().item()
            assert found.divergence[one, other] == pytest.approx(nats, abs=1e-9)


def test_rows_that_one_head_lacks_are_left_aside():
    layer = case("empty rows per head").layer
    found = head_divergences(trace_of(layer))
    expected = by_pairs(layer.weights(slice(None)))
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(found.divergence[off], expected[off], atol=1e-7)
    assert np.isnan(found.divergence[2, [0, 1, 3]]).all()  # a head that attends to nothing at all
    assert np.isfinite(found.divergence[np.ix_([0, 1, 3], [0, 1, 3])]).all()


def test_equal_heads_are_at_0_and_disjoint_ones_at_the_largest_distance():
    one, other = torch.eye(5)[None], torch.eye(5).roll(1, 0)[None]
    divergence = head_divergences(trace_of((0, torch.cat([one, other, one])))).divergence
    np.testing.assert_allclose(divergence, [[0, LN2, 0], [LN2, 0, LN2], [0, LN2, 0]], atol=1e-12)
    assert divergence[0, 2] == 0
    random = maps(1, 5, 7)
    assert not head_divergences(trace_of((0, random.repeat(3, 1, 1)))).divergence.any()


def test_the_distance_is_a_metric():
    distance = head_divergences(trace_of((0, maps(11, 3, 5)))).distance
    assert (distance[:, :, None] + distance[None] >= distance[:, None] - 1e-9).all()
    assert distance.max() <= head_distances.FARTHEST


@pytest.mark.parametrize("budget", [0, 11 * 10 // 2 * 8 * 5])
def test_above_the_budget_evenly_spaced_rows_are_read_and_counted(monkeypatch, budget):
    monkeypatch.setattr(head_distances, "MOST_CELLS", budget)
    weights = maps(11, 17, 7)
    found = head_divergences(trace_of((0, weights), role="cross"))
    rows = {0: [2, 6, 10, 14], 2200: [1, 5, 8, 11, 15]}[budget]
    assert (found.rows, found.of_rows) == (len(rows), 17)
    np.testing.assert_allclose(found.divergence, by_pairs(weights, rows), atol=1e-7)
    nearest = nearest_heads(trace_of((0, weights), role="cross"), 0, 3)
    few = {0: rows, 2200: list(range(17))}[budget]  # one head against all is within the larger budget
    assert nearest.attrs == {"rows": len(few), "of_rows": 17}
    expected = by_pairs(weights, few)[3]
    np.testing.assert_allclose(nearest["divergence"], expected[nearest["head"]], atol=1e-7)


@pytest.mark.parametrize(("name", "value"), [("WEIGHT_BYTES", 1), ("WEIGHT_BYTES", 3000), ("BLOCK_CELLS", 1)])
def test_small_blocks_meet_without_a_seam(monkeypatch, name, value):
    trace = trace_of((0, maps(7, 13, 11)), role="cross")
    whole = head_divergences(trace).divergence
    monkeypatch.setattr(head_distances, name, value)
    np.testing.assert_allclose(head_divergences(trace).divergence, whole, atol=1e-12)


def test_progress_rises_to_1(monkeypatch):
    monkeypatch.setattr(head_distances, "WEIGHT_BYTES", 4000)
    told = []
    head_divergences(trace_of((0, maps(11, 13, 13))), progress=lambda share, sentence: told.append((share, sentence)))
    shares = [share for share, _ in told]
    assert len(shares) > 5
    assert shares == sorted(set(shares))
    assert shares[-1] == 1
    assert {sentence for _, sentence in told} == {"Comparing 11 heads"}


def test_the_nearest_heads_come_first_and_ties_by_layer_and_head():
    first, second = maps(3, 5, 5), maps(2, 5, 5, seed=1)
    second[1] = first[2] = first[0]
    trace = trace_of((1, first), (4, second))
    found = nearest_heads(trace, 1, -3)
    assert list(found.columns) == ["layer", "head", "divergence"]
    assert found[["layer", "head"]].to_numpy().tolist()[:2] == [[1, 2], [4, 1]]
    assert found["divergence"].tolist()[:2] == [0, 0]
    expected = by_pairs(torch.cat([first, second]))[0]
    np.testing.assert_allclose(found["divergence"], np.sort(expected[1:]), atol=1e-7)
    assert found["divergence"].is_monotonic_increasing
    assert len(found) == 4


def test_heads_without_a_row_in_common_come_last():
    found = nearest_heads(trace_of(case("empty rows per head").layer), 2, 0)
    assert found["head"].tolist()[-1] == 2
    assert found["divergence"].isna().tolist() == [False, False, True]


def test_a_head_that_is_not_there_is_refused():
    trace = trace_of((0, maps(3, 5, 5)))
    with pytest.raises(OptionError, match="heads 0 to 2, got head 3"):
        nearest_heads(trace, 0, 3)
    with pytest.raises(OptionError, match=r"layer of \[0\], got 1"):
        nearest_heads(trace, 1, 0)
    with pytest.raises(OptionError, match="role"):
        head_divergences(trace, "cross")


def test_one_head_alone():
    trace = trace_of((0, maps(1, 5, 5)))
    found = head_divergences(trace)
    assert found.divergence.tolist() == [[0]]
    assert len(nearest_heads(trace, 0, 0)) == 0
    assert cluster(found.distance).order == (0,)
    assert cluster(found.distance).linkage.shape == (0, 4)
    assert embed(found.distance).tolist() == [[0, 0]]


# Tree and plane


def points(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 2)) / 5


def test_groups_stand_together_in_the_order():
    near = points(3) / 100
    scattered = np.concatenate([near, near + 1, near - 1])[[0, 3, 6, 1, 4, 7, 2, 5, 8]]
    order, tree = cluster(squareform(pdist(scattered)))
    groups = [at % 3 for at in order]
    assert [groups[0:3], groups[3:6], groups[6:9]] == [[groups[0]] * 3, [groups[3]] * 3, [groups[6]] * 3]
    assert groups[3] == 0  # the middle group stands in the middle
    assert tree.shape == (8, 4)
    assert hierarchy.is_valid_linkage(tree)


def test_average_linkage_joins_at_mean_distances():
    distance = np.array([[0, 1, 4], [1, 0, 6], [4, 6, 0.0]])
    assert cluster(distance).linkage[:, 2].tolist() == [1, 5]


@pytest.mark.parametrize("turned", [0, 512])
def test_neighbours_in_the_order_are_as_near_as_the_tree_allows(monkeypatch, turned):
    monkeypatch.setattr(head_distances, "MOST_TURNED", turned)
    distance = squareform(pdist(points(23)))
    order = list(cluster(distance).order)
    steps = distance[order[:-1], order[1:]].sum()
    assert sorted(order) == list(range(23))
    plain = hierarchy.leaves_list(hierarchy.linkage(squareform(distance), "average"))
    plain_steps = distance[plain[:-1], plain[1:]].sum()
    assert (steps < plain_steps) if turned else (steps == plain_steps)


@pytest.mark.parametrize("count", [2, 3, 211])
@pytest.mark.parametrize("value", [0.0, 0.5])
def test_equal_heads_have_a_tree_and_points_too(count, value):
    distance = np.full((count, count), value)
    np.fill_diagonal(distance, 0)
    order, tree = cluster(distance)
    assert sorted(order) == list(range(count))
    assert (tree[:, 2] == value).all()
    found = embed(distance)
    assert found.shape == (count, 2)
    assert np.isfinite(found).all()
    assert found.any() == bool(value)


@pytest.mark.parametrize("count", [3, 5, 47])
def test_points_of_a_plane_come_back(count):
    distance = squareform(pdist(points(count)))
    found = embed(distance)
    np.testing.assert_allclose(squareform(pdist(found)), distance, atol=1e-9)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("count", [2, 3, 19])
def test_points_of_a_line_stay_on_one(count):
    line = np.linspace(0, 0.8, count)[:, None]
    found = embed(squareform(pdist(line)))
    np.testing.assert_allclose(found, np.stack([0.4 - line[:, 0], np.zeros(count)], axis=1), atol=1e-7)


def test_the_picture_does_not_flip():
    plane = points(19)
    found = embed(squareform(pdist(plane)))
    for mirrored in (plane * [-1, 1], plane * [1, -1], plane[:, ::-1] + 3, plane):
        np.testing.assert_allclose(embed(squareform(pdist(mirrored))), found, atol=1e-9)
    for axis in found.T:
        assert axis[np.abs(axis) >= np.abs(axis).max() / 2][0] > 0


def test_unknown_distances_count_as_the_largest():
    distance = head_divergences(trace_of(case("empty rows per head").layer)).distance
    order, tree = cluster(distance)
    assert 2 in (order[0], order[-1])
    assert tree[-1, 2] == pytest.approx(head_distances.FARTHEST)
    assert np.isfinite(embed(distance)).all()


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_older_scikit_learn_has_a_plane_too(monkeypatch):
    from sklearn import manifold

    monkeypatch.delattr(manifold, "ClassicalMDS")
    distance = squareform(pdist(points(7)))
    np.testing.assert_allclose(squareform(pdist(embed(distance))), distance, atol=0.05)
    assert np.array_equal(embed(distance), embed(distance))
