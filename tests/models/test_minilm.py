"""MiniLM, the model that comes with attnviz, against transformers' own eager attention on awkward texts."""

import threading

import pytest
import torch
from transformers import AutoModel

import attnviz
from attnviz.errors import OptionError
from attnviz.pretrained import locate, model_files

LAYERS, HEADS, LONGEST = 6, 12, 512
ANIMAL = "The animal didn't cross the street because it was too {}."
TEXTS = {
    "an ordinary sentence": ANIMAL.format("tired"),
    "repeated words": "the cat saw the dog because the dog was loud",
    "one word over and over": "the the the the the",
    "markup": '<b>bold</b> </script> a<b<c <a href="http://x">',
    "marks of other models": "<s> and </s>",
    "special tokens as text": "[CLS] and [SEP] and [MASK] as text",
    "dollars and stars": 'It costs $5, or $6 *_ :smile: "',
    "newline and tab": "one\ntwo\tthree",
    "leading spaces": '   the and "the"',
    "emoji": "👍🏽 and 👨‍👩‍👧",
    "Chinese and Japanese": "猫が犬を見た",
    "Arabic": "هذا نص عربي قصير",
    "Hebrew": "שלום עולם",
    "a change of direction": "\u202eright to left\u202c",
    "one word": "word",
    "one sign": ".",
    "a word in pieces": "unbelievableness of antidisestablishmentarianism",
    "a word too long to know": "a" * 190,
    "an address": "https://example.org/?a=b&c=d",
    "mathematics": "e = m · c² ≈ 9·10¹⁶ J/kg",
    "one short of the limit": "cat " * (LONGEST - 3),
    "one over the limit": "cat " * (LONGEST - 1),
    "far over the limit": "sentence one. sentence two! sentence three? " * 60,
}
PAIR = ("the cat", "a dog barks at the cat")


@pytest.fixture(scope="module")
def model():
    return attnviz.load_model("minilm", device="cpu")


@pytest.fixture(scope="module")
def eager():
    stock = AutoModel.from_pretrained(model_files(locate("minilm")), dtype=torch.float32, local_files_only=True).eval()
    stock.set_attn_implementation("eager")
    return stock


def assert_equal_to_stock(trace, eager, inputs):
    with torch.no_grad():
        stock = eager(**inputs, output_attentions=True).attentions
    assert trace.layers() == tuple(range(LAYERS)) == tuple(range(len(stock)))
    assert trace.query_tokens().ids == trace.key_tokens().ids == tuple(inputs["input_ids"][0].tolist())
    for layer, expected in enumerate(stock):
        assert trace.heads(layer) == HEADS
        found = torch.stack([trace.weights(layer, head) for head in range(HEADS)])
        torch.testing.assert_close(found, expected[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:2]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", TEXTS)
def test_every_head_equals_stock_eager(model, eager, kind):
    inputs = model.tokenizer(TEXTS[kind], return_tensors="pt", truncation=True, max_length=LONGEST)
    assert_equal_to_stock(model.trace(TEXTS[kind]), eager, inputs)


def test_every_head_of_a_pair_equals_stock_eager(model, eager):
    inputs = model.tokenizer(*PAIR, return_tensors="pt")
    assert inputs["token_type_ids"].any()
    assert_equal_to_stock(model.trace(PAIR[0], pair=PAIR[1]), eager, inputs)


def test_it_refers_to_the_animal_that_is_tired(model):
    tired, wide = (model.trace(ANIMAL.format(word)) for word in ("tired", "wide"))
    assert (tired.query_tokens().labels[10], tired.key_tokens().labels[2]) == ("it", "animal")
    assert float(tired.weights(3, 1)[10, 2]) == pytest.approx(0.677, abs=5e-4)
    assert float(wide.weights(3, 1)[10, 2]) == pytest.approx(0.28, abs=5e-3)


def test_it_says_how_it_is_traced(model):
    assert model.support.how == "interface"
    assert 0 <= model.support.max_difference < 1e-5
    assert model.trace("word").support == model.support
    assert [(role, len(shapes)) for role, shapes in model.shapes.items()] == [("encoder", LAYERS)]
    assert {(shape.heads, shape.key_heads, shape.d_head) for shape in model.shapes["encoder"]} == {(HEADS, HEADS, 32)}


@pytest.mark.parametrize(("words", "notices"), [(LONGEST - 2, 0), (LONGEST - 1, 1), (700, 1)])
def test_a_text_is_shortened_with_a_notice_only_when_it_is_too_long(model, words, notices):
    trace = model.trace("cat " * words)
    assert len(trace.query_tokens()) == LONGEST
    assert len(trace.notices) == notices
    for notice in trace.notices:
        assert f"{LONGEST} of {words + 2} tokens" in notice


def test_a_pair_keeps_its_two_segments(model):
    tokens = model.trace(PAIR[0], pair=PAIR[1]).query_tokens()
    assert tokens.labels == ("[CLS]", "the", "cat", "[SEP]", "a", "dog", "bark", "##s", "at", "the", "cat", "[SEP]")
    words = [side for side, special in zip(tokens.segments, tokens.is_special, strict=True) if not special]
    assert words == [0] * 2 + [1] * 7
    assert model.trace(PAIR[0]).query_tokens().segments is None


def test_only_the_layers_asked_for_are_kept(model):
    whole, part = model.trace(TEXTS["repeated words"]), model.trace(TEXTS["repeated words"], layers=[1, 4])
    assert part.layers() == (1, 4)
    assert part.nbytes < whole.nbytes
    for layer in part.layers():
        assert torch.equal(part.layer(layer).weights(slice(None)), whole.layer(layer).weights(slice(None)))
    with pytest.raises(OptionError, match=r"\[6\]"):
        model.trace("word", layers=[1, LAYERS])


def test_tracing_changes_no_bit_of_the_output(model):
    inputs = model.tokenizer(TEXTS["an ordinary sentence"], return_tensors="pt")
    with torch.no_grad():
        before = model.hf_model(**inputs)
    trace = model.trace(TEXTS["an ordinary sentence"])
    with torch.no_grad():
        after = model.hf_model(**inputs)
    assert torch.equal(trace.outputs, before.last_hidden_state[0])
    for one, other in zip(before.to_tuple(), after.to_tuple(), strict=True):
        assert torch.equal(one, other)


def test_two_people_at_once_get_their_own_traces(model):
    texts = [TEXTS["repeated words"], "two dogs and a horse"]
    alone = [model.trace(text) for text in texts]
    start = threading.Barrier(len(texts))
    together = [[], []]

    def run(at):
        start.wait(timeout=60)
        for _ in range(5):
            together[at].append(model.trace(texts[at]))

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for expected, traces in zip(alone, together, strict=True):
        assert len(traces) == 5
        for trace in traces:
            assert trace.layers() == expected.layers()
            assert trace.query_tokens().labels == expected.query_tokens().labels
            for layer in expected.layers():
                found = trace.layer(layer).weights(slice(None))
                torch.testing.assert_close(found, expected.layer(layer).weights(slice(None)), atol=1e-6, rtol=0)


def test_a_longer_text_is_estimated_to_take_and_keep_more(model):
    short, long = model.estimate("a cat"), model.estimate("a cat " * 200)
    assert (short.tokens, long.tokens) == (4, 402)
    assert long.seconds > short.seconds
    assert long.bytes == 402 * 4 * (LAYERS * HEADS * 32 * 3 + (LAYERS + 1) * 384)


def test_the_vectors_after_each_layer_are_those_transformers_gives(model, eager):
    text = TEXTS["an ordinary sentence"]
    trace = model.trace(text)
    states = trace.hidden_states()
    with torch.no_grad():
        own = eager(**model.tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
    assert len(states) == len(own) == LAYERS + 1
    for state, expected in zip(states, own, strict=True):
        torch.testing.assert_close(state, expected[0], atol=1e-5, rtol=0)
    assert torch.equal(states[0], trace.inputs)
    assert torch.equal(states[-1], trace.outputs)  # BERT has no norm after its last layer
