"""MiniLM, the model that comes with attnviz, against transformers' own eager attention on awkward sentences."""

import threading

import pytest
import torch
from transformers import AutoModel

import attnviz
from attnviz.pretrained import locate, model_files

ANIMAL = "The animal didn't cross the street because it was too {}."
SENTENCES = [
    ANIMAL.format("tired"),
    "the cat saw the dog because the dog was loud",
    "<b>bold</b> </script> a<b<c",
    "It costs $5, or $6 *_ :smile:",
    "one\ntwo\tthree",
    "👍🏽 and 👨‍👩‍👧",
    "猫が犬を見た",
    "هذا نص عربي قصير",
    "שלום עולם",
    "word",
    ".",
    "a" * 90,
    "https://example.org/?a=b&c=d",
    "unbelievableness of antidisestablishmentarianism",
    "e = m · c² ≈ 9·10¹⁶ J/kg",
    "[CLS] and [SEP] and [MASK] as text",
    "\u202eright to left\u202c",
    "ALL CAPS AND lower",
    "the the the the the",
    "sentence one. sentence two! sentence three? " * 40,
]


@pytest.fixture(scope="module")
def model():
    return attnviz.load_model("minilm", device="cpu")


@pytest.fixture(scope="module")
def eager():
    return AutoModel.from_pretrained(model_files(locate("minilm")), attn_implementation="eager").eval()


@pytest.mark.parametrize("sentence", SENTENCES)
def test_every_head_equals_stock_eager(model, eager, sentence):
    trace = model.trace(sentence)
    inputs = model.tokenizer(sentence, return_tensors="pt", truncation=True, max_length=model.max_length)
    with torch.no_grad():
        stock = eager(**inputs, output_attentions=True).attentions
    assert trace.layers() == tuple(range(6))
    for layer, expected in enumerate(stock):
        found = torch.stack([trace.weights(layer, head) for head in range(12)])
        torch.testing.assert_close(found, expected[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:2]), atol=1e-5, rtol=0)


def test_it_refers_to_the_animal_that_is_tired(model):
    tired, wide = (model.trace(ANIMAL.format(word)) for word in ("tired", "wide"))
    assert (tired.query_tokens().labels[10], tired.key_tokens().labels[2]) == ("it", "animal")
    assert float(tired.weights(3, 1)[10, 2]) == pytest.approx(0.677, abs=5e-4)
    assert float(wide.weights(3, 1)[10, 2]) == pytest.approx(0.28, abs=5e-3)


def test_it_says_how_it_is_traced(model):
    assert model.support.how == "interface"
    assert model.support.max_difference < 5e-5
    assert [len(layers) for layers in model.shapes.values()] == [6]


def test_a_long_text_is_shortened_with_a_notice(model):
    trace = model.trace("cat " * 700)
    assert len(trace.query_tokens()) == 512
    assert any("512" in notice and "702" in notice for notice in trace.notices)


def test_a_pair_keeps_its_two_segments(model):
    tokens = model.trace("the cat", pair="a dog barks").query_tokens()
    assert (
        tokens.labels == ("[CLS]", "the", "cat", "[SEP]", "a", "dog", "bark", "##s", "[SEP]") or "dog" in tokens.labels
    )
    middle = tokens.labels.index("[SEP]")
    assert set(tokens.segments[1:middle]) == {0}
    assert set(tokens.segments[middle + 1 : -1]) == {1}


def test_tracing_changes_no_bit_of_the_output(model):
    inputs = model.tokenizer(SENTENCES[0], return_tensors="pt")
    with torch.no_grad():
        before = model.hf_model(**inputs).last_hidden_state
    trace = model.trace(SENTENCES[0])
    with torch.no_grad():
        after = model.hf_model(**inputs).last_hidden_state
    assert torch.equal(before, after)
    assert torch.equal(trace.outputs, before[0])


def test_two_people_at_once_get_their_own_traces(model):
    texts = ["one cat", "two dogs and a horse", "three"] * 4
    alone = [model.trace(text).weights(5, 11) for text in texts]
    together: list = [None] * len(texts)

    def run(at):
        together[at] = model.trace(texts[at]).weights(5, 11)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


def test_a_longer_text_is_estimated_to_take_and_keep_more(model):
    short, long = model.estimate("a cat"), model.estimate("a cat " * 200)
    assert (short.tokens, long.tokens) == (4, 402)
    assert long.seconds > short.seconds
    assert long.bytes == 402 * 4 * 6 * 12 * 32 * 3
