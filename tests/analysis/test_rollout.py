"""Means, rollout and flow against stock eager weights multiplied with numpy, a linear programme, and sums by hand."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from transformers import AutoModel

import attnviz
from attnviz.analysis import rollout as module
from attnviz.analysis.rollout import flow, mean_weights, rollout
from attnviz.errors import OptionError, SupportError
from attnviz.layers import StoredLayer
from attnviz.pretrained import locate, model_files
from attnviz.rules import ScoreRule
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace, Support

sys.path.append(str(Path(__file__).parent.parent / "models"))
import zoo

TEXT = "The animal didn't cross the street because it was too tired."
CLOSE = {"atol": 1e-5, "rtol": 0}


def trace_of(maps, role="decoder", rules=None):
    """A trace of stored maps {layer: [head, query, key]}."""
    rules = rules or {}
    stored = [
        StoredLayer(
            layer=at, role=role, rule=rules.get(at, ScoreRule(scaling=1.0)), stored=torch.as_tensor(table).float()
        )
        for at, table in maps.items()
    ]
    queries, keys = stored[0].shape[1:]
    sides = {
        "query_tokens": {role: TokenSequence.numbered(queries)},
        "key_tokens": {role: TokenSequence.numbered(keys)},
    }
    return AttentionTrace(stored, **sides, support=Support("fallback"))


def random_maps(layers, heads, queries, keys=None, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {at: torch.rand(heads, queries, keys or queries, generator=generator).mul(4).softmax(-1) for at in layers}


def rolled(maps, counts=None):
    """Â of every layer multiplied, by the definition."""
    result = None
    for table in maps:
        weights = np.asarray(table, dtype=np.float64)
        mean = np.average(weights, axis=0, weights=counts)
        step = 0.5 * mean + 0.5 * np.eye(len(mean))
        step = step / step.sum(1, keepdims=True)
        result = step if result is None else step @ result
    return result


def stock(model, inputs):
    """Eager weights per role, [head, query, key] of the batch's second text."""
    return {role: [one[1].numpy() for one in tables] for role, tables in zoo.reference(model, inputs).weights.items()}


def tiny(model_type):
    model = zoo.tiny_model(zoo.tiny_config(model_type))
    inputs = zoo.inputs_of(model.config)
    return attnviz.trace_model(model, inputs, item=1), stock(model, inputs)


@pytest.fixture(scope="module")
def minilm():
    return attnviz.load_model("minilm", device="cpu")


def test_minilm_equals_stock_eager_rolled_with_numpy(minilm):
    eager = AutoModel.from_pretrained(
        model_files(locate("minilm")), dtype=torch.float32, local_files_only=True, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        maps = eager(**minilm.tokenizer(TEXT, return_tensors="pt"), output_attentions=True).attentions
    maps = [table[0].numpy() for table in maps]
    trace = minilm.trace(TEXT)
    found = rollout(trace)
    np.testing.assert_allclose(found.matrix, rolled(maps), **CLOSE)
    np.testing.assert_allclose(rollout(trace, layers=[4, 1]).matrix, rolled([maps[1], maps[4]]), **CLOSE)
    np.testing.assert_allclose(mean_weights(trace), np.mean(maps, axis=(0, 1)), **CLOSE)
    np.testing.assert_allclose(mean_weights(trace, layers=[2]), maps[2].mean(0), **CLOSE)
    assert "the encoder's layers 0 to 5:" in found.sentence
    assert found.own is None


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "gpt_oss", "minimax"])
def test_decoders_equal_stock_eager(model_type):
    trace, weights = tiny(model_type)
    maps = [table for table in weights["decoder"] or weights["encoder"] if table.shape == (6, 17, 17)]
    found = rollout(trace)
    np.testing.assert_allclose(found.matrix, rolled(maps), **CLOSE)
    assert not found.matrix.triu(1).any()
    assert ("sinks" in found.sentence) == (model_type == "gpt_oss")
    assert ("layers 0, 2:" in found.sentence) == (model_type == "minimax")
    assert ("passed over" in found.sentence) == (model_type == "minimax")


@pytest.mark.parametrize("model_type", ["t5", "bart"])
def test_a_decoder_onto_its_encoder_equals_stock_eager(model_type):
    trace, weights = tiny(model_type)
    encoder = rolled(weights["encoder"])
    own, onto = np.eye(7), np.zeros((7, 17))
    for itself, cross in zip(weights["decoder"], weights["cross"], strict=True):
        step = 0.5 * itself.mean(0) + 0.5 * np.eye(7)
        own, onto = step @ own, step @ onto
        own, onto = 0.5 * own, 0.5 * onto + 0.5 * cross.mean(0) @ encoder
    found = rollout(trace, "cross")
    np.testing.assert_allclose(found.matrix, onto, **CLOSE)
    np.testing.assert_allclose(found.own, own, **CLOSE)
    np.testing.assert_allclose(found.matrix.sum(1) + found.own.sum(1), np.ones(7), **CLOSE)
    np.testing.assert_allclose(rollout(trace, "encoder").matrix, encoder, **CLOSE)
    np.testing.assert_allclose(rollout(trace, "decoder").matrix, rolled(weights["decoder"]), **CLOSE)
    assert "layers 0 to 1 (self- and cross-attention) onto the encoder's tokens, after" in found.sentence
    first = rollout(trace, "cross", layers=[0])
    np.testing.assert_allclose(first.matrix, 0.5 * weights["cross"][0].mean(0) @ encoder, **CLOSE)
    last_head = rollout(trace, "cross", layers=[0], head_weights={(0, 5): 3.0})
    np.testing.assert_allclose(last_head.matrix, 0.5 * weights["cross"][0][5] @ encoder, **CLOSE)
    with pytest.raises(OptionError, match="layer of .* got 2"):
        rollout(trace, "cross", layers=[0, 2])


def test_cross_attention_alone_has_half_of_each_row():
    maps = random_maps([0], 3, 5, 7)
    found = rollout(trace_of(maps, "cross"))
    torch.testing.assert_close(found.matrix, maps[0].mean(0) / 2)
    torch.testing.assert_close(found.own, torch.eye(5) / 2)
    assert "whose own layers are not in this trace" in found.sentence
    maps[0] *= 0.25  # the rest goes to a sink
    halved = rollout(trace_of(maps, "cross"))
    torch.testing.assert_close(halved.matrix, maps[0].mean(0) / 1.25)
    torch.testing.assert_close(halved.matrix.sum(1) + halved.own.sum(1), torch.ones(5))


def test_one_sequence_for_both_sides_cannot_be_followed():
    model = zoo.tiny_model(zoo.tiny_config("t5gemma2"))
    trace = attnviz.trace_model(model, zoo.inputs_of(model.config))
    with pytest.raises(SupportError, match="encoder's 17 tokens, got 24 keys"):
        rollout(trace, "cross")


def test_rows_that_may_attend_to_nothing_keep_to_themselves():
    maps = random_maps([0, 1], 2, 5)
    maps[0][:, 3], maps[1][:, 2] = 0, 0
    np.testing.assert_allclose(rollout(trace_of(maps)).matrix, rolled(maps.values()), **CLOSE)
    torch.testing.assert_close(rollout(trace_of({0: maps[0]})).matrix[3], torch.eye(5)[3])


def test_heads_count_by_their_weights():
    maps = random_maps([0, 1, 3], 3, 5)
    trace = trace_of(maps)
    weights = {(0, 0): 2.0, (0, 2): 1.0, (3, 1): 0.5}
    found = rollout(trace, head_weights=weights)
    right = rolled([maps[3][1:2]]) @ rolled([maps[0]], counts=[2, 0, 1])
    np.testing.assert_allclose(found.matrix, right, **CLOSE)
    assert "by their weights" in found.sentence
    mean = (2 * maps[0][0] + maps[0][2] + 0.5 * maps[3][1]) / 3.5
    torch.testing.assert_close(mean_weights(trace, head_weights=weights), mean)
    torch.testing.assert_close(mean_weights(trace, heads=[1], layers=[0, 1]), (maps[0][1] + maps[1][1]) / 2)
    torch.testing.assert_close(mean_weights(trace, heads=[1], head_weights=weights), maps[3][1])


def test_the_mean_of_one_head_is_that_head(minilm):
    trace = minilm.trace(TEXT)
    assert torch.equal(mean_weights(trace, head_weights={(3, 1): 1.0}), trace.weights(3, 1))


def test_what_no_head_may_attend_to_is_not_a_number():
    masks = torch.ones(2, 3, 3, dtype=torch.bool).tril()
    masks[1, 0, 2] = True
    maps = {0: torch.tensor([[[1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]], [[0.5, 0, 0.5], [1, 0, 0], [0, 0, 1.0]]])}
    trace = trace_of(maps, rules={0: ScoreRule(scaling=1.0, mask=masks)})
    nan = torch.nan
    both = torch.tensor([[0.75, 0, 0.25], [0.75, 0.25, nan], [0, 0.25, 0.75]])
    both[0, 1] = nan
    torch.testing.assert_close(mean_weights(trace), both, equal_nan=True)
    first = torch.tensor([[1, nan, nan], [0.5, 0.5, nan], [0, 0.5, 0.5]])
    torch.testing.assert_close(mean_weights(trace, heads=[0]), first, equal_nan=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layers": []}, "at least one head that counts"),
        ({"heads": []}, "at least one head that counts"),
        ({"head_weights": {(0, 1): 0.0}}, "at least one head that counts"),
        ({"head_weights": {(0, 1): -0.5, (1, 1): 1.0}}, r"0 or more, got \[0.0, -0.5\] in layer 0"),
        ({"head_weights": {(0, 1): float("nan")}}, "0 or more"),
        ({"head_weights": {(2, 0): 1.0}}, r"layer of \[0, 1\], got 2"),
        ({"head_weights": {(1, 2): 1.0}}, "heads 0 to 1, got head 2"),
        ({"heads": [2]}, "heads 0 to 1, got head 2"),
        ({"layers": [7]}, r"layer of \[0, 1\], got 7"),
    ],
)
def test_what_cannot_be_averaged(options, words):
    trace = trace_of(random_maps([0, 1], 2, 3))
    with pytest.raises(OptionError, match=words):
        mean_weights(trace, **options)
    if "heads" not in options:
        with pytest.raises(OptionError, match=words):
            rollout(trace, **options)


def test_queries_and_keys_must_be_the_same_tokens():
    trace = trace_of(random_maps([0], 2, 3, 5))
    for follow in (rollout, lambda trace: flow(trace, 0)):
        with pytest.raises(SupportError, match="3 queries and 5 keys"):
            follow(trace)


def test_flow_by_hand():
    """Two layers of one head each, three tokens, all earlier tokens allowed.

    Layer 0 attends to the first token alone: Â = ½I plus ½ on the first. Layer 1's last row is (½, 0, ½): its Â is
    (¼, 0, ¾). From the last token at the top: ¼ into token 0, ¾ into token 2 of the middle. Token 0 there gives all to
    input 0; token 2 gives ½ to input 2 and ½ to input 0. So input 0 gets ¼ + ½ = ¾, input 1 nothing, input 2 ½.
    """
    first = [[1.0, 0, 0], [1, 0, 0], [1, 0, 0]]
    second = [[1.0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5]]
    trace = trace_of({0: [first], 1: [second]})
    assert flow(trace, 2).tolist() == [0.75, 0.0, 0.5]
    assert flow(trace, 2, layers=[1]).tolist() == [0.25, 0.0, 0.75]
    assert flow(trace, 0).tolist() == [1, 0, 0]
    torch.testing.assert_close(rollout(trace).matrix[2], torch.tensor([0.625, 0, 0.375]))  # which divides what flows


def linear_flow(steps, query, key):
    """The largest flow as a linear programme over the edges, in float64."""
    layers, tokens = len(steps), len(steps[0])
    edges = [(at, i, j) for at in range(layers) for i in range(tokens) for j in range(tokens)]
    balance = np.zeros(((layers - 1) * tokens, len(edges)))
    gain = np.zeros(len(edges))
    for number, (at, i, j) in enumerate(edges):
        if at > 0:
            balance[(at - 1) * tokens + j, number] += 1  # arrives at token j, above layer at − 1
        if at < layers - 1:
            balance[at * tokens + i, number] -= 1
        gain[number] = -1.0 if at == 0 and j == key else 0.0
    bounds = [
        (0, steps[at][i, j] if (at < layers - 1 or i == query) and (at > 0 or j == key) else 0) for at, i, j in edges
    ]
    return -linprog(gain, A_eq=balance, b_eq=np.zeros(len(balance)), bounds=bounds).fun


@pytest.mark.parametrize("query", [0, 3])
def test_flow_equals_a_linear_programme(query):
    maps = random_maps([0, 1, 2], 2, 5, seed=3)
    steps = [rolled([table]) for table in maps.values()]
    right = [linear_flow(steps, query, key) for key in range(5)]
    np.testing.assert_allclose(flow(trace_of(maps), query), right, atol=25 * 2**-21)
    assert not np.allclose(right, rolled(maps.values())[query], atol=1e-2)  # and is not rollout


def test_flow_is_sought_in_small_networks_only(monkeypatch):
    trace = trace_of(random_maps([0, 1], 1, 3))
    with pytest.raises(OptionError, match="query of 0 to 2, got 3"):
        flow(trace, 3)
    with pytest.raises(OptionError, match="query of 0 to 2, got -1"):
        flow(trace, -1)
    monkeypatch.setattr(module, "MOST_EDGES", 17)
    with pytest.raises(OptionError, match="2 layers of 3 tokens takes 18 edges, more than the 17"):
        flow(trace, 0)
    assert len(flow(trace, 0, layers=[1])) == 3
