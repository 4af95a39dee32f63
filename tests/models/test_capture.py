"""Tracing through the attention interface: padding, items, layers, modes, threads, and what is refused."""

import copy
import threading
import warnings

import pytest
import torch
import zoo
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import attnviz
from attnviz.errors import LoadError, OptionError, SupportError, TextError
from attnviz.models.capture import ACTIVE


def model_of(model_type, **options):
    return zoo.tiny_model(zoo.tiny_config(model_type, **options))


def state(model):
    """What a trace must leave as it found it."""
    hooks = [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules()]
    return [part.training for part in model.modules()], hooks, model.config.to_dict(), model.config._attn_implementation


@pytest.mark.parametrize("model_type", ["gpt2", "t5", "bloom"])
def test_the_model_is_left_as_it_was(model_type):
    model = model_of(model_type).train()
    next(model.children()).eval()
    before = copy.deepcopy(state(model))
    attnviz.trace_model(model, zoo.inputs_of(model.config))
    assert state(model) == before
    assert ACTIVE.get() is None


def test_it_is_left_as_it_was_after_a_failure():
    model = model_of("gpt2").train()
    handle = model.h[2].register_forward_hook(lambda *_: 1 / 0)
    before = copy.deepcopy(state(model))
    with pytest.raises(ZeroDivisionError):
        attnviz.trace_model(model, zoo.token_ids(1, 7))
    assert state(model) == before
    assert ACTIVE.get() is None
    handle.remove()


def test_dropout_is_off_during_the_trace():
    model = model_of("bert", attention_probs_dropout_prob=0.9, hidden_dropout_prob=0.9)
    inputs = zoo.inputs_of(model.config)
    expected = attnviz.trace_model(model.eval(), inputs).weights(2, 5)
    assert torch.equal(attnviz.trace_model(model.train(), inputs).weights(2, 5), expected)


def test_nobody_listening_gets_the_stock_function():
    attnviz.trace_model(model_of("gpt2"), zoo.token_ids(1, 7))
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is sdpa_attention_forward
    assert ALL_ATTENTION_FUNCTIONS.get_interface("eager", len) is len


@pytest.mark.parametrize("model_type", ["bert", "llama", "t5", "qwen2"])
def test_sdpa_and_eager_give_the_same_trace(model_type):
    config = zoo.tiny_config(model_type)
    traces = []
    for implementation in ("sdpa", "eager"):
        model = zoo.tiny_model(config, implementation=implementation)
        traces.append(attnviz.trace_model(model, zoo.inputs_of(config, padding="left"), item=1))
    for role in traces[0].roles:
        for number in traces[0].layers(role):
            one, two = (trace.layer(number, role).weights(slice(None)) for trace in traces)
            torch.testing.assert_close(one, two, atol=1e-5, rtol=0)


def test_tensors_are_views_and_small():
    model = model_of("gpt2")
    trace = attnviz.trace_model(model, zoo.token_ids(1, 17))
    layer = trace.layer(1)
    assert layer.query.untyped_storage().data_ptr() == layer.value.untyped_storage().data_ptr()  # of one projection
    vectors = 1 + 3 + 1  # into the first layer, out of each, after the norm
    kept = 3 * 3 * 17 * zoo.WIDTH * 4 + 3 * zoo.HEADS * 17 * 4 + vectors * 17 * zoo.WIDTH * 4
    assert trace.nbytes == kept


def test_the_projection_turns_heads_into_what_the_module_gives():
    model = model_of("gpt2")  # Conv1D keeps its matrix transposed
    ids, outputs = zoo.token_ids(1, 17), []
    handle = model.h[1].attn.register_forward_hook(lambda _, __, output: outputs.append(output[0]))
    trace = attnviz.trace_model(model, ids)
    handle.remove()
    torch.testing.assert_close(trace.projected(1), outputs[0][0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("model_type", ["bert", "llama", "t5", "bart", "albert", "deepseek_v3"])
def test_projections_are_found(model_type):
    trace = attnviz.trace_model(model_of(model_type), zoo.inputs_of(zoo.tiny_config(model_type)))
    for role in trace.roles:
        for number in trace.layers(role):
            layer = trace.layer(number, role)
            assert layer.projection is not None
            assert layer.projection.weight.shape == (zoo.WIDTH, layer.shape[0] * layer.value.shape[-1])


def test_a_gated_output_has_no_projection():
    """Qwen3-Next multiplies the heads by a gate first, so its matrix does not take what the heads give."""
    trace = attnviz.trace_model(model_of("qwen3_next"), zoo.inputs_of(zoo.tiny_config("qwen3_next")))
    assert trace.layer(1).projection is None


def test_vectors_in_and_out():
    model = model_of("gpt2")
    inputs = zoo.inputs_of(model.config, padding="left")
    with torch.no_grad():
        stock = model(**inputs, output_hidden_states=True)
    trace = attnviz.trace_model(model, inputs, item=1)
    assert torch.equal(trace.inputs, stock.hidden_states[0][1, 5:])
    assert torch.equal(trace.outputs, stock.last_hidden_state[1, 5:])


def test_vectors_of_an_encoder_decoder():
    model = model_of("bart")
    inputs = zoo.inputs_of(model.config, padding="right")
    with torch.no_grad():
        stock = model(**inputs)
    trace = attnviz.trace_model(model, inputs, item=1)
    assert torch.equal(trace.outputs, stock.last_hidden_state[1])
    assert torch.equal(trace.key_inputs, stock.encoder_last_hidden_state[1, :12])
    assert trace.layers("encoder") == (0, 1, 2)
    assert trace.layers("decoder") == trace.layers("cross") == (0, 1)
    assert (len(trace.query_tokens("cross")), len(trace.key_tokens("cross"))) == (7, 12)


def test_ids_the_model_makes_for_its_decoder_are_learnt():
    model = model_of("bart")
    trace = attnviz.trace_model(model, {"input_ids": zoo.token_ids(1, 11)}, tokenizer=None)
    assert len(trace.query_tokens("decoder")) == 11


def test_holes_in_the_mask_are_left_out():
    model = model_of("bert")
    inputs = zoo.inputs_of(model.config)
    inputs["attention_mask"][1, [3, 4, 9]] = 0
    trace = attnviz.trace_model(model, inputs, item=1)
    real = [at for at in range(17) if at not in (3, 4, 9)]
    own = zoo.reference(model, inputs).weights["encoder"][0][1][:, real][:, :, real]
    torch.testing.assert_close(trace.layer(0).weights(slice(None)), own, atol=1e-5, rtol=0)


def test_padding_without_a_mask_is_said():
    model = model_of("bert")
    ids = zoo.inputs_of(model.config, padding="right")["input_ids"]
    with pytest.warns(UserWarning, match="no attention_mask"):
        attnviz.trace_model(model, {"input_ids": ids}, item=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attnviz.trace_model(model, {"input_ids": ids}, item=0)


def test_some_layers_only():
    model = model_of("t5")
    inputs = zoo.inputs_of(model.config)
    whole, part = attnviz.trace_model(model, inputs), attnviz.trace_model(model, inputs, layers=[1])
    assert {role: part.layers(role) for role in part.roles} == dict.fromkeys(("encoder", "decoder", "cross"), (1,))
    assert part.nbytes < whole.nbytes
    assert torch.equal(part.weights(1, 2, "cross"), whole.weights(1, 2, "cross"))
    with pytest.raises(OptionError, match=r"\[0, 1, 2\], got \[7\]"):
        attnviz.trace_model(model, inputs, layers=[1, 7])


def test_a_layer_shared_by_several_is_numbered_by_the_order_of_its_calls():
    trace = attnviz.trace_model(model_of("albert"), zoo.token_ids(1, 7))
    assert trace.layers() == (0, 1, 2)
    assert not torch.equal(trace.weights(0, 0), trace.weights(2, 0))


def test_two_threads_trace_one_model():
    model = model_of("gpt2").train()
    texts = [zoo.token_ids(1, 29, seed=1), zoo.token_ids(1, 13, seed=2)]
    expected = [attnviz.trace_model(model, ids).weights(2, 3) for ids in texts]
    found, start = [[], []], threading.Barrier(2)

    def work(which):
        start.wait()
        for _ in range(15):
            found[which].append(attnviz.trace_model(model, texts[which]).weights(2, 3))

    threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for which in range(2):
        assert len(found[which]) == 15
        assert all(torch.equal(one, expected[which]) for one in found[which])
    assert all(part.training for part in model.modules())


def test_two_towers_that_both_encode_say_what_is_left_out():
    config = zoo.tiny_config("siglip")
    model = zoo.tiny_model(config)
    size = config.vision_config.image_size
    inputs = {"input_ids": zoo.token_ids(1, 11), "pixel_values": torch.randn(1, 3, size, size)}
    trace = attnviz.trace_model(model, inputs)
    assert len(trace.query_tokens()) == 11
    assert "vision" in trace.notices[0]


def test_half_precision_is_the_true_softmax():
    model = model_of("llama").bfloat16()
    layer = attnviz.trace_model(model, zoo.token_ids(1, 17)).layer(1)
    assert layer.query.dtype == torch.bfloat16
    key = layer.key.float().repeat_interleave(3, 0)
    scores = layer.query.float() @ key.transpose(1, 2) * layer.rule.scaling
    scores = scores.masked_fill(~layer.allowed(), -torch.inf)
    torch.testing.assert_close(layer.weights(slice(None)), scores.softmax(-1), atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("inputs", "error", "words"),
    [
        ({"input_ids": torch.zeros(1, 0, dtype=torch.long)}, TextError, "at least one token"),
        ({"input_ids": torch.tensor([[5, 103]])}, LoadError, "id 103"),
        (["the"], OptionError, "mapping"),
    ],
)
def test_inputs_that_cannot_be_traced_are_refused(inputs, error, words):
    with pytest.raises(error, match=words):
        attnviz.trace_model(model_of("gpt2"), inputs)


def test_an_item_beyond_the_batch_is_refused():
    with pytest.raises(OptionError, match="0 to 1"):
        attnviz.trace_model(model_of("gpt2"), zoo.token_ids(2, 7), item=2)


def test_nan_is_a_sentence():
    model = model_of("llama")
    with torch.no_grad():
        model.layers[1].self_attn.q_proj.weight.fill_(float("nan"))
    with pytest.raises(SupportError, match="NaN"):
        attnviz.trace_model(model, zoo.token_ids(1, 7))


@pytest.mark.parametrize("model_type", ["mamba", "fnet"])
def test_a_model_without_attention_is_a_sentence(model_type):
    with pytest.raises(SupportError, match="No attention"):
        attnviz.trace_model(model_of(model_type), zoo.token_ids(1, 7))


def test_an_attention_that_does_more_is_refused(monkeypatch):
    """A layer whose function does not give softmax(QKᵀ)·V must not be shown as if it did."""
    from transformers.models.gpt2 import modeling_gpt2

    stock = modeling_gpt2.eager_attention_forward

    def odd(module, query, key, value, *args, **kwargs):
        output, weights = stock(module, query, key, value, *args, **kwargs)
        return output * 1.01, weights

    monkeypatch.setattr(modeling_gpt2, "eager_attention_forward", odd)
    model = zoo.tiny_model(zoo.tiny_config("gpt2"), implementation="eager")
    trace = attnviz.trace_model(model, zoo.token_ids(1, 17))
    assert trace.support.how == "fallback"  # its weights are still its own


def test_another_implementation_is_a_sentence(monkeypatch):
    def flash(module, query, key, value, mask, **options):
        weights = (query @ key.transpose(2, 3)).exp()
        return (weights / weights.sum(-1, keepdim=True) @ value).transpose(1, 2), None

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "flash_attention_2", flash)
    model = model_of("gpt2")
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_attention_2")
    with pytest.raises(SupportError, match="attn_implementation='sdpa'"):
        attnviz.trace_model(model, {"input_ids": zoo.token_ids(1, 7)})
