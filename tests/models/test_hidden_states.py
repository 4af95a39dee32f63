"""The vectors between the layers are those transformers gives out itself, and listening for them leaves no trace."""

import functools

import pytest
import tiny_models
import torch
import zoo

import attnviz
from attnviz.errors import ShapeError
from attnviz.models import load, running
from attnviz.models.load import PretrainedModel
from attnviz.models.vectors import StackVectors
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace, Support

ENCODERS = (
    "bert roberta distilbert albert electra xlm-roberta modernbert ernie esm layoutlm data2vec-text mobilebert "
    "roberta-prelayernorm eurobert deberta deberta-v2 mpnet xlnet rembert"
).split()
NORMED = {"modernbert", "esm", "roberta-prelayernorm", "eurobert"}  # a norm of their own after the last layer
WITHOUT = {"xlm": "no list of whole layers", "flaubert": "no list of whole layers", "squeezebert": "[token, d_model]"}


def model_of(model_type):
    return zoo.tiny_model(zoo.tiny_config(model_type, **zoo.WINDOWS.get(model_type, {})))


def own_states(output, name, rows):
    return [state[1][rows] for state in getattr(output, name)]


def assert_same(states, own):
    assert len(states) == len(own)
    for state, expected in zip(states, own, strict=True):
        assert state.dtype == torch.float32
        torch.testing.assert_close(state, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("model_type", ENCODERS)
def test_encoders_equal_transformers(model_type):
    """Padding is left out, and one module that is called for every layer (ALBERT's) gives one state per call."""
    model = model_of(model_type)
    inputs = zoo.inputs_of(model.config, padding="left")
    trace = attnviz.trace_model(model, inputs, item=1)
    with torch.no_grad():
        output = model(**inputs, output_hidden_states=True)
    states, own = trace.hidden_states(), own_states(output, "hidden_states", slice(5, None))
    assert states[0].data_ptr() == trace.inputs.data_ptr()  # kept once
    if model_type in NORMED:
        assert not torch.allclose(states[-1], own[-1], atol=1e-3)
        torch.testing.assert_close(trace.outputs, own[-1], atol=1e-5, rtol=0)
        own = own[:-1]
        states = states[:-1]
    assert_same(states, own)


@pytest.mark.parametrize("model_type", ["t5", "bart"])
def test_both_sides_of_an_encoder_decoder(model_type):
    model = model_of(model_type)
    inputs = zoo.inputs_of(model.config, padding="right")
    trace = attnviz.trace_model(model, inputs, item=1)
    with torch.no_grad():
        output = model(**inputs, output_hidden_states=True, use_cache=False)
    last = None if model_type == "bart" else -1
    assert len(trace.hidden_states("encoder")) == zoo.LAYERS + 1
    assert len(trace.hidden_states("decoder")) == zoo.DECODER_LAYERS + 1
    for role, rows in (("encoder", slice(12)), ("decoder", slice(None))):
        own = own_states(output, f"{role}_hidden_states", rows)
        assert_same(trace.hidden_states(role)[:last], own[:last])
    pairs = zip(trace.hidden_states("cross"), trace.hidden_states("decoder"), strict=True)
    assert all(one.data_ptr() == two.data_ptr() for one, two in pairs)


def test_layers_without_attention_count():
    trace = attnviz.trace_model(model_of("jamba"), zoo.inputs_of(zoo.tiny_config("jamba")))
    assert trace.layers() == (1,)
    assert len(trace.hidden_states()) == zoo.LAYERS + 1


@pytest.mark.parametrize("model_type", WITHOUT)
def test_models_whose_layers_are_not_known_say_so(model_type):
    model = model_of(model_type)
    trace = attnviz.trace_model(model, zoo.inputs_of(model.config))
    assert trace.hidden_states() == ()
    (notice,) = trace.notices
    assert WITHOUT[model_type] in notice


def test_a_layer_that_changes_its_input_in_place_changes_nothing_kept():
    class Adding(torch.nn.Module):
        def forward(self, vectors):
            return vectors.add_(1)

    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList([Adding(), Adding(), Adding()])
    vectors, hidden = StackVectors(model, batch=2, item=1), torch.zeros(2, 5, 7)
    with vectors.listening(lambda: True):
        for layer in model.layers:
            hidden = layer(hidden)
    assert vectors.entering["layers"].shape == (1, 5, 7)
    assert [float(state.mean()) for state in vectors.between["layers"]] == [1, 2, 3]


def test_nothing_is_heard_after_the_run_or_by_others():
    model = model_of("gpt2")
    vectors = StackVectors(model, batch=2, item=0)
    with pytest.raises(KeyError), vectors.listening(lambda: False):
        model(**zoo.inputs_of(model.config))
        raise KeyError
    attnviz.trace_model(model, zoo.inputs_of(model.config))
    assert vectors.between == {"h": []}
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("over", [0, 1])
def test_above_the_budget_none_is_kept_and_a_notice_says_so(over, monkeypatch):
    model = model_of("gpt2")
    size = 17 * zoo.WIDTH * 4 * (zoo.LAYERS + 1)  # of the item alone
    monkeypatch.setattr(running, "StackVectors", functools.partial(StackVectors, budget=size - over))
    trace = attnviz.trace_model(model, zoo.inputs_of(model.config))
    assert len(trace.hidden_states()) == (0 if over else zoo.LAYERS + 1)
    assert len(trace.notices) == over
    assert not over or "256 MiB" in trace.notices[0]
    assert trace.inputs.shape == (17, zoo.WIDTH)


@pytest.mark.parametrize(("budget", "places"), [(4 * 11 * 18, 3), (4 * 11 * 18 - 1, 0)])
def test_the_estimate_counts_them_up_to_the_budget(budget, places, monkeypatch):
    monkeypatch.setattr(load, "HIDDEN_BUDGET", budget)
    model = PretrainedModel("tiny", tiny_models.bert(), tiny_models.tokenizer())
    found = model.estimate("the cat saw the dog it was tired the")
    assert found.tokens == 11
    assert found.bytes == 4 * 11 * (2 * 3 * 6 + places * 6)  # queries, keys and values of 2 layers, and the vectors


def test_a_module_has_its_inputs_and_outputs():
    module = attnviz.MultiHeadCrossAttention(6, 3)
    trace = module.trace(torch.randn(5, 6), torch.randn(7, 6))
    before, after = trace.hidden_states()
    assert torch.equal(before, trace.inputs)
    assert torch.equal(after, trace.outputs)


def test_vectors_that_do_not_go_with_the_tokens_are_refused():
    layer = attnviz.SelfAttention(3).trace(torch.randn(5, 3)).layer(0)
    sides = {
        "query_tokens": {"encoder": TokenSequence.numbered(5)},
        "key_tokens": {"encoder": TokenSequence.numbered(5)},
    }
    with pytest.raises(ShapeError, match=r"5 encoder tokens, got \[5, 7\]"):
        AttentionTrace(
            [layer],
            **sides,
            hidden_states={"encoder": [torch.zeros(5, 3), torch.zeros(7, 3)]},
            support=Support("interface"),
        )
