"""The self-check compares a trace with the model's own weights, and leaves the model as it was."""

from dataclasses import replace

import pytest
import torch
import zoo

from attnviz.errors import SupportError
from attnviz.models.stacks import choose_stacks
from attnviz.models.support import check, eager_attention, own_difference, own_weights, shortened
from attnviz.models.tracing import run_through_interface


def probe(model_type, **options):
    model = zoo.tiny_model(zoo.tiny_config(model_type, **options))
    inputs = zoo.inputs_of(model.config)
    run = run_through_interface(model, inputs, item=0, layers=None)
    return model, inputs, choose_stacks(run.collector.recorded)[0]


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "t5", "gemma2", "gpt_oss", "granite_swa", "minimax", "jamba"])
def test_the_difference_from_eager_is_rounding(model_type):
    model, inputs, chosen = probe(model_type)
    before = model.config._attn_implementation
    assert 0 <= check(model, inputs, chosen) < 5e-6
    assert model.config._attn_implementation == before


def test_a_wrong_layer_is_refused():
    model, inputs, chosen = probe("llama")
    first = chosen["decoder"][0]
    wrong = replace(first.layer, rule=replace(first.layer.rule, scaling=first.layer.rule.scaling * 1.01))
    chosen["decoder"][0] = replace(first, layer=wrong)
    with pytest.raises(SupportError, match=r"layer 0 \(decoder\) differs"):
        check(model, inputs, chosen)


def test_a_missing_layer_is_refused():
    model, inputs, chosen = probe("llama")
    with pytest.raises(SupportError, match="Expected 3 decoder layers"):
        check(model, inputs, {"decoder": chosen["decoder"][1:]})


def test_a_role_the_model_does_not_give_is_refused():
    _, _, chosen = probe("llama")
    with pytest.raises(SupportError, match="Expected 0"):
        own_difference(chosen, {"cross_attentions": [torch.ones(1, 6, 17, 17)]})
    assert own_difference(chosen, {}) is None


def test_eager_attention_is_put_back_in_every_part():
    model = zoo.tiny_model(zoo.tiny_config("siglip"))
    seen = []

    def fail():
        with eager_attention(model):
            seen.append(model.text_model.config._attn_implementation)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == ["eager"]
    assert model.text_model.config._attn_implementation == "sdpa"
    assert model.config._attn_implementation == "sdpa"


def test_stock_gives_nothing_under_sdpa_by_itself():
    model, inputs, _ = probe("gpt2")
    assert own_weights(model, inputs) == {}


def test_a_probe_is_short_and_without_padding():
    config = zoo.tiny_config("bart")
    short = shortened(zoo.inputs_of(config, length=29, padding="left"), config, 1)
    assert short["input_ids"].shape == (1, 16)
    assert short["attention_mask"].all()
    assert short["decoder_input_ids"].shape == (1, 7)
    assert shortened({"pixel_values": torch.zeros(1, 3, 8, 8)}, config, 0) is None
