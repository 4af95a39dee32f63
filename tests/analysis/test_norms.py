"""Norms of weighted values against the vectors that hooks on the real modules see, added up by hand."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import attnviz
from attnviz.analysis.norms import head_norms, norm_weighted, value_norms
from attnviz.analysis.shown import ShownOptions, show
from attnviz.errors import OptionError, SupportError

sys.path.append(str(Path(__file__).parent.parent / "models"))
import zoo

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def hearing(run, *modules):
    """What each module gives out during a run."""
    heard = []
    handles = [part.register_forward_hook(lambda _, __, given: heard.append(given.detach())) for part in modules]
    with torch.no_grad():
        run()
    for handle in handles:
        handle.remove()
    return heard


def check(trace, number, values, output, role=None):
    """Compare with ‖weight · v W_O‖ of values [head, key, d_value] and of W_O as [head, d_value, d_model]."""
    table = head_norms(trace, role)
    for head in range(trace.heads(number, role)):
        weights = trace.weights(number, head, role)
        vectors = weights[..., None] * (values[head] @ output[head])  # [query, key, d_model]
        torch.testing.assert_close(norm_weighted(trace, number, head, role), vectors.norm(dim=-1), **CLOSE)
        norms = (values[head] @ output[head]).norm(dim=-1)
        torch.testing.assert_close(value_norms(trace, number, head, role), norms, **CLOSE)
        row = table[(table["layer"] == number) & (table["head"] == head)]
        np.testing.assert_allclose(row["value_norm"], norms.mean(), rtol=1e-5)
    # and all heads' vectors together are what the projection gives out
    parts = [trace.weights(number, head, role) @ values[head] @ output[head] for head in range(len(output))]
    bias = trace.layer(number, role).projection.bias
    whole = sum(parts) if bias is None else sum(parts) + bias
    torch.testing.assert_close(whole, trace.projected(number, role), atol=1e-4, rtol=1e-4)


def test_minilm():
    model = attnviz.load_model("minilm", device="cpu")
    text = "unbelievableness of 5 cats"
    layer = model.hf_model.encoder.layer[2].attention
    inputs = model.tokenizer(text, return_tensors="pt")
    value = hearing(lambda: model.hf_model(**inputs), layer.self.value)[0]
    values = value[0].unflatten(-1, (12, 32)).transpose(0, 1)
    check(model.trace(text), 2, values, layer.output.dense.weight.detach().T.unflatten(0, (12, 32)))


def test_grouped_values():
    model = zoo.tiny_model(zoo.tiny_config("llama"))
    inputs = zoo.inputs_of(model.config)
    attention = model.layers[1].self_attn
    value = hearing(lambda: model(**inputs), attention.v_proj)[0][1]
    values = value.unflatten(-1, (zoo.KEY_HEADS, zoo.HEAD_DIM)).transpose(0, 1).repeat_interleave(3, 0)
    output = attention.o_proj.weight.detach().T.unflatten(0, (zoo.HEADS, zoo.HEAD_DIM))
    check(attnviz.trace_model(model, inputs, item=1), 1, values, output)


def test_a_projection_that_is_kept_transposed():
    model = zoo.tiny_model(zoo.tiny_config("gpt2"))
    inputs = zoo.inputs_of(model.config)
    attention = model.h[2].attn
    value = hearing(lambda: model(**inputs), attention.c_attn)[0][1][:, 2 * zoo.WIDTH :]
    values = value.unflatten(-1, (zoo.HEADS, zoo.HEAD_DIM)).transpose(0, 1)
    output = attention.c_proj.weight.detach().unflatten(0, (zoo.HEADS, zoo.HEAD_DIM))
    check(attnviz.trace_model(model, inputs, item=1), 2, values, output)


def test_values_narrower_than_keys():
    model = zoo.tiny_model(zoo.tiny_config("deepseek_v2"))
    trace = attnviz.trace_model(model, zoo.inputs_of(model.config))
    layer = trace.layer(1)
    assert (layer.value.shape[2], layer.key.shape[2]) == (7, 10)
    output = model.layers[1].self_attn.o_proj.weight.detach().T.unflatten(0, (zoo.HEADS, 7))
    check(trace, 1, layer.value, output)


def test_cross_attention_of_a_model():
    model = zoo.tiny_model(zoo.tiny_config("bart"))
    inputs = zoo.inputs_of(model.config)
    attention = model.decoder.layers[1].encoder_attn
    value = hearing(lambda: model(**inputs), attention.v_proj)[0][1]
    values = value.unflatten(-1, (zoo.HEADS, zoo.HEAD_DIM)).transpose(0, 1)
    output = attention.out_proj.weight.detach().T.unflatten(0, (zoo.HEADS, zoo.HEAD_DIM))
    check(attnviz.trace_model(model, inputs, item=1), 1, values, output, "cross")


def test_toy_modules_with_and_without_a_projection():
    torch.manual_seed(0)
    several, one = attnviz.MultiHeadSelfAttention(15, 5), attnviz.CrossAttention(7)
    trace = several.trace(torch.randn(11, 15))
    check(trace, 0, trace.layer(0).value, several.out.weight.detach().T.unflatten(0, (5, 3)))
    vectors, others = torch.randn(5, 7), torch.randn(3, 7)
    alone = one.trace(vectors, others)
    values = one.v_linear(others).detach()
    torch.testing.assert_close(value_norms(alone, 0, 0), values.norm(dim=-1), **CLOSE)
    torch.testing.assert_close(norm_weighted(alone, 0, 0), alone.weights(0, 0) * values.norm(dim=-1), **CLOSE)


@pytest.mark.parametrize(
    ("model_type", "words"),
    [("diffllama", "output projection of layer 1 .decoder. is not known"), ("bloom", "values are not known")],
)
def test_what_is_not_known(model_type, words):
    model = zoo.tiny_model(zoo.tiny_config(model_type))
    trace = attnviz.trace_model(model, zoo.inputs_of(model.config))
    with pytest.raises(SupportError, match=words):
        norm_weighted(trace, 1, 0)
    table = head_norms(trace)
    assert len(table) == 18
    assert table["value_norm"].isna().all()


def test_a_view_has_no_values_and_a_head_must_be_there():
    trace = attnviz.MultiHeadSelfAttention(6, 3).trace(torch.randn(5, 6))
    with pytest.raises(SupportError, match="Turn the view off"):
        norm_weighted(show(trace, ShownOptions(hide_first=True)), 0, 0)
    with pytest.raises(OptionError, match="heads 0 to 2, got head 3"):
        value_norms(trace, 0, 3)
    assert value_norms(trace, 0, -1).equal(value_norms(trace, 0, 2))
