"""A text through vectors and a module: the worked example, every combination, every wrong choice."""

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import nn

from attnviz.attention import CrossAttention, MultiHeadSelfAttention, set_weights
from attnviz.embeddings import load_embedding
from attnviz.errors import OptionError, TextError
from attnviz.experiment import ARTICLE_EXAMPLE, EmbeddingName, Experiment, ModuleName, run_experiment

DOGS = "the cat saw the dog because the dog was loud"
STREET = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="module")
def minilm():
    return load_embedding("minilm", device="cpu")


def run(text=DOGS, model=None, **choices):
    return run_experiment(Experiment(text=text, device="cpu", **choices), model)


def all_weights(trace):
    return torch.stack([trace.weights(0, head) for head in range(trace.heads(0))])


def test_the_worked_example_has_the_right_numbers():
    trace = run_experiment(replace(ARTICLE_EXAMPLE, device="cpu")).trace
    weights = [
        [0.2384, 0.1175, 0.2384, 0.2384, 0.1674],
        [0.1097, 0.2226, 0.2226, 0.2226, 0.2226],
        [0.1337, 0.1337, 0.2711, 0.2711, 0.1904],
        [0.1337, 0.1337, 0.2711, 0.2711, 0.1904],
        [0.1223, 0.1741, 0.2479, 0.2479, 0.2078],
    ]
    output = [[0.7988, 0.7616], [0.6662, 0.8903], [0.7711, 0.8663], [0.7711, 0.8663], [0.7220, 0.8777]]
    torch.testing.assert_close(trace.weights(0, 0), torch.tensor(weights), atol=5.1e-5, rtol=0)
    torch.testing.assert_close(trace.outputs, torch.tensor(output), atol=5.1e-5, rtol=0)
    assert trace.query_tokens().labels == ("karina", "is", "to", "the", "store")


@pytest.mark.parametrize("module", get_args(ModuleName))
@pytest.mark.parametrize("embedding", get_args(EmbeddingName))
def test_every_module_takes_every_kind_of_vector(module, embedding, minilm):
    text, context = ("karina is to the store", "the store is") if embedding == "article" else (DOGS, "a loud dog")
    trace = run(text, minilm, context=context, module=module, embedding=embedding, heads=2, dimension=16).trace
    special = 2 if embedding.startswith("pretrained") else 0
    queries = len(text.split()) + special
    keys = len(context.split()) + special if "cross" in module else queries
    assert len(trace.query_tokens()) == queries
    assert len(trace.key_tokens()) == keys
    assert trace.heads(0) == (2 if "multi-head" in module else 1)
    assert trace.roles == ("cross" if "cross" in module else "encoder",)
    weights = all_weights(trace)
    assert weights.shape == (trace.heads(0), queries, keys)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
    assert trace.outputs.shape == trace.inputs.shape
    assert trace.inputs.shape[1] == {"article": 2, "random": 16, "one-hot": 16}.get(embedding, 384)


def test_a_repeated_word_has_a_row_of_its_own_and_the_same_numbers_until_positions_are_added():
    plain = run()
    assert plain.trace.query_tokens().labels == tuple(DOGS.split())
    weights = all_weights(plain.trace)
    assert weights.shape == (4, 10, 10)
    for first, second in ((4, 7), (0, 3), (0, 6)):
        torch.testing.assert_close(weights[:, first], weights[:, second])
        torch.testing.assert_close(weights[:, :, first], weights[:, :, second])
    (notice,) = plain.notices
    assert "“the” stands at positions 0 and 3 with the same vector" in notice
    assert "no head can tell the two apart" in notice

    placed = run(positions=True)
    weights = all_weights(placed.trace)
    assert (weights[:, 4] - weights[:, 7]).abs().max() > 0.01
    assert placed.notices == ()


def test_a_causal_mask_tells_repeated_words_apart_and_the_notice_says_so():
    outcome = run(causal=True)
    trace = outcome.trace
    assert trace.roles == ("decoder",)
    assert torch.equal(trace.allowed(0), torch.ones(10, 10).tril().bool())
    assert not all_weights(trace).triu(1).any()
    assert not torch.allclose(trace.weights(0, 0)[4], trace.weights(0, 0)[7])
    assert "only the mask tells the two apart" in outcome.notices[0]
    assert run(context="a dog", module="cross", causal=True).trace.allowed(0).all()  # no order between two texts


def test_cross_attention_is_not_square():
    trace = run("two words", context="attended to by both", module="multi-head cross").trace
    assert all_weights(trace).shape == (4, 2, 4)
    assert trace.key_tokens().labels == ("attended", "to", "by", "both")


def test_one_word_in_both_texts_has_one_vector():
    for embedding in ("random", "one-hot"):
        trace = run("dog", context="a loud dog", module="cross", embedding=embedding).trace
        assert torch.equal(trace.inputs[0], trace.key_inputs[2])


def test_vectors_without_positions_are_the_inputs_and_positions_add_sinusoids():
    added = run(positions=True).trace.inputs - run().trace.inputs
    torch.testing.assert_close(added[0], torch.tensor([0.0, 1.0] * 8))
    assert added[3, 0].item() == pytest.approx(math.sin(3), abs=1e-5)


@pytest.mark.parametrize(("module", "width"), [("self", 16), ("multi-head self", 4)])
def test_scale_divides_scores_by_the_root_of_the_heads_width(module, width):
    scaled, raw = (run(module=module, scale=scale).trace.scores(0, 0) for scale in (True, False))
    torch.testing.assert_close(raw, scaled * math.sqrt(width))


def test_identity_weights_pass_the_vectors_through():
    trace = run(weights="identity", module="multi-head self").trace
    for part in (trace.queries, trace.keys, trace.values):
        assert torch.equal(part(0, 1), trace.inputs[:, 4:8])


@pytest.mark.parametrize("embedding", ["random", "one-hot"])
def test_a_seed_is_the_whole_of_chance(embedding):
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = run(embedding=embedding, seed=3).trace
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(8)
    second, other = run(embedding=embedding, seed=3).trace, run(embedding=embedding, seed=4).trace
    assert torch.equal(all_weights(first), all_weights(second))
    assert torch.equal(first.outputs, second.outputs)
    assert not torch.allclose(all_weights(first), all_weights(other))


@pytest.mark.parametrize(
    ("choices", "error", "sentence"),
    [
        ({"heads": 3}, OptionError, r"embed_dim = 16, got num_heads = 3. Choose one of \[1, 2, 4, 8, 16\]"),
        ({"heads": 0}, OptionError, "at least 1, got 16 and 0"),
        ({"dimension": 0}, OptionError, "1 or more, got 0"),
        ({"text": ""}, TextError, "at least one word in the text, got nothing"),
        ({"text": " \n\t"}, TextError, "at least one word in the text, got nothing"),
        ({"module": "cross"}, TextError, "at least one word in the text attended to, got nothing"),
        ({"embedding": "article"}, TextError, "karina, is, to, the, store only, got 'cat'"),
        ({"embedding": "one-hot", "dimension": 4}, OptionError, "at most 4 different words.*got 7"),
        ({"embedding": "pretrained input"}, OptionError, "a loaded model.*got none"),
        ({"device": "cuda:99"}, OptionError, "cpu.*got 'cuda:99'"),
        ({"module": "transformer"}, OptionError, "multi-head cross, got 'transformer'"),
        ({"embedding": "glove"}, OptionError, "one-hot.*got 'glove'"),
        ({"weights": "zeros"}, OptionError, "identity, random, got 'zeros'"),
    ],
)
def test_a_wrong_choice_is_said_with_what_was_expected(choices, error, sentence):
    with pytest.raises(error, match=sentence):
        run_experiment(Experiment(**{"text": DOGS, "device": "cpu"} | choices))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<s>", 3),
        ("</s> <b>bold</b>", 4 + 8),
        ('<a href="http://x"> a<b<c " </script>', None),
        ("It costs $5, or $6 *_ :smile: #000032", None),
        ("line\nbreak\ttab  two spaces", 5),
        ("👍 猫 هذا 👨\u200d👩\u200d👧", 4),
        ("שלום עולם", 2),
        ("\u202ereversed\x00nul", None),
        ("half \ud83d of a pair", 5),
        ("one", 1),
        ("x" * 300, 1),
    ],
)
def test_awkward_texts_have_a_row_per_word(text, words):
    for causal in (False, True):
        trace = run(text, dimension=8, heads=2, causal=causal).trace
        rows = len(trace.query_tokens())
        assert words is None or rows == words
        assert all(label.isprintable() or "\u200d" in label for label in trace.query_tokens().labels)
        assert all_weights(trace).shape == (2, rows, rows)
        assert all_weights(trace).isfinite().all()
        trace.statistics()


@pytest.mark.parametrize("kind", ["pretrained input", "pretrained contextual"])
def test_a_real_model_gives_word_pieces_and_their_vectors(kind, minilm):
    outcome = run(STREET, minilm, embedding=kind, heads=12)
    read = minilm.input_vectors if kind == "pretrained input" else minilm.contextual_vectors
    assert torch.equal(outcome.trace.inputs, read(STREET).vectors)
    assert outcome.trace.query_tokens().labels[:6] == ("[CLS]", "the", "animal", "didn", "'", "t")
    assert all_weights(outcome.trace).shape == (12, 16, 16)
    repeated = [notice for notice in outcome.notices if "“the” stands at positions 1 and 7" in notice]
    assert len(repeated) == (kind == "pretrained input")  # context tells the two apart


def test_a_text_longer_than_the_model_takes_is_shortened_and_says_so(minilm):
    outcome = run("dog " * 600, minilm, embedding="pretrained input", heads=1)
    assert len(outcome.trace.query_tokens()) == 512
    assert outcome.notices[0] == "Shortened to the 512 tokens the model takes; the last 90 tokens went."


def test_random_weights_keep_vectors_about_as_long_as_they_were():
    module = MultiHeadSelfAttention(256, 4)
    set_weights(module, "random", seed=5)
    for linear in (module.q, module.k, module.v, module.out):
        assert linear.weight.std().item() == pytest.approx(1 / math.sqrt(256), rel=0.02)
        assert abs(linear.weight.mean().item()) < 0.001
        assert not linear.bias.any()
    assert not torch.equal(module.q.weight, module.k.weight)
    vectors = torch.randn(50, 256, generator=torch.Generator().manual_seed(0))
    assert (module.q(vectors).norm() / vectors.norm()).item() == pytest.approx(1, rel=0.05)


def test_set_weights_is_repeated_by_its_seed_and_leaves_the_global_state():
    modules = [CrossAttention(8) for _ in range(3)]
    state = torch.get_rng_state()
    for module, seed in zip(modules, (1, 1, 2), strict=True):
        set_weights(module, "random", seed=seed)
    assert torch.equal(torch.get_rng_state(), state)
    first, second, other = (nn.utils.parameters_to_vector(module.parameters()) for module in modules)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    set_weights(modules[0], "identity")
    assert all(torch.equal(part.weight, torch.eye(8)) for part in modules[0].children())
    assert all(part.weight.requires_grad for part in modules[0].children())
