"""Off the interface: weights are kept as their softmax gives them, under a budget."""

import pytest
import torch
import zoo

import attnviz
from attnviz.errors import SupportError
from attnviz.trace import ComputedLayer, StoredLayer


def model_of(model_type, **options):
    return zoo.tiny_model(zoo.tiny_config(model_type, **options))


def test_weights_are_kept_with_what_may_be_attended():
    kinds = {"attention_types": [[["global", "local"], 1]], "attention_layers": ["global", "local"], "num_layers": 2}
    trace = attnviz.trace_model(model_of("gpt_neo", window_size=5, **kinds), zoo.token_ids(1, 17))
    one, two = trace.layer(0), trace.layer(1)
    assert isinstance(one, StoredLayer)
    assert one.rule.causal
    assert (one.rule.window, two.rule.window) == (None, 5)
    assert trace.support.how == "fallback"


def test_queries_and_keys_are_kept_where_pytorchs_attention_is_called():
    trace = attnviz.trace_model(model_of("falcon"), zoo.token_ids(1, 17))
    assert isinstance(trace.layer(0), ComputedLayer)
    assert trace.support.how == "fallback"


def test_too_many_bytes_offer_a_choice_of_layers():
    model, ids = model_of("bloom"), zoo.token_ids(1, 31)
    one_layer = zoo.HEADS * 31 * 31 * 4
    with pytest.raises(SupportError, match="layers="):
        attnviz.trace_model(model, ids, budget=2 * one_layer)
    trace = attnviz.trace_model(model, ids, layers=[0, 2], budget=2 * one_layer)
    assert trace.layers() == (0, 2)


def test_the_budget_is_checked_before_the_run():
    model, ids = model_of("bloom"), zoo.token_ids(1, 31)
    seen = []
    model.h[1].register_forward_hook(lambda *_: seen.append(1))
    attnviz.trace_model(model, zoo.token_ids(1, 5))  # the probe
    seen.clear()
    with pytest.raises(SupportError):
        attnviz.trace_model(model, ids, budget=zoo.HEADS * 31 * 31 * 4 * 2)
    assert not seen  # the first layer told enough


def test_layers_share_a_mask():
    inputs = zoo.inputs_of(zoo.tiny_config("xlm"))
    inputs["attention_mask"][0, [3, 8]] = 0
    trace = attnviz.trace_model(model_of("xlm"), inputs)
    assert trace.layer(0).shape[1] == 15
    assert trace.layer(0).rule.mask is None  # what was padding is gone, and nothing else was masked


@pytest.mark.parametrize("model_type", ["longformer", "led"])
def test_chunks_are_refused_in_a_sentence(model_type):
    config = zoo.tiny_config(model_type)
    with pytest.raises(SupportError, match="in pieces"):
        attnviz.trace_model(zoo.tiny_model(config), zoo.inputs_of(config))


@pytest.mark.parametrize("model_type", ["yoso", "rwkv"])
def test_other_kinds_are_refused_in_a_sentence(model_type):
    with pytest.raises(SupportError, match="No attention"):
        attnviz.trace_model(model_of(model_type), zoo.token_ids(1, 17))


def test_a_softmax_that_is_not_the_models_weights_is_refused():
    """LiLT adds two maps, and gives out one of them."""
    with pytest.raises(SupportError, match="cannot be shown exactly"):
        attnviz.trace_model(model_of("lilt"), zoo.token_ids(1, 17))


def test_padded_items_of_flattened_heads():
    """Bloom's softmax is over [batch · head, query, key]."""
    model = model_of("bloom")
    inputs = zoo.inputs_of(model.config, padding="left")
    stock = zoo.reference(model, inputs).weights["decoder"]
    for item, first in ((0, 0), (1, 5)):
        trace = attnviz.trace_model(model, inputs, item=item)
        assert torch.equal(trace.layer(2).weights(slice(None)), stock[2][item][:, first:, first:])
