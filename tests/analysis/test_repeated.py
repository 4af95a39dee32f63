"""Random tokens said twice: the scores against the diagonals of the maps, and who is refused."""

import os
from pathlib import Path

import circuits
import numpy as np
import pytest
import tiny_models
import torch
from transformers import MistralConfig, MistralForCausalLM

import attnviz
from attnviz.analysis.names import head_names
from attnviz.analysis.patterns import baseline, patterns
from attnviz.analysis.repeated import LENGTH, REPEATED, repeated_patterns, repeated_trace
from attnviz.errors import OptionError, SupportError
from attnviz.models.load import PretrainedModel
from attnviz.trace import Support

VARIABLE = "ATTNVIZ_SMOLLM2"


def mistral(**options):
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "intermediate_size": 7, "num_hidden_layers": 2, "max_position_embeddings": 41}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4}
    config = MistralConfig(vocab_size=len(circuits.WORDS), initializer_range=0.5, **sizes, **heads, **options)
    return MistralForCausalLM(config).eval()


@pytest.fixture(scope="module")
def circuit():
    return PretrainedModel("circuit", circuits.gpt2(), circuits.tokenizer())


@pytest.fixture(scope="module")
def random_model():
    return PretrainedModel("random", mistral(sliding_window=None), circuits.tokenizer())


def diagonals(trace, length):
    """The mean weights on i − length and on i − length + 1, over the second half, of every head."""
    start = len(trace.query_tokens()) - length
    rows = np.arange(start, start + length)
    found = []
    for layer in trace.layers():
        for head in range(trace.heads(layer)):
            weights = trace.weights(layer, head).numpy()
            found.append([weights[rows, rows - back].mean() for back in (length, length - 1)])
    return np.array(found)


@pytest.mark.parametrize(("length", "seed"), [(2, 0), (5, 1), (17, 2), (None, 0)])
def test_scores_are_the_means_of_two_diagonals(random_model, length, seed):
    trace = repeated_trace(random_model, length=length, seed=seed)
    found = repeated_patterns(random_model, length=length, seed=seed)
    assert list(found.columns) == ["layer", "head", *REPEATED]
    assert len(found) == 2 * 6
    expected = diagonals(trace, 17 if length is None else length)
    np.testing.assert_allclose(found[["duplicate_token", "induction"]], expected, atol=3e-6)
    assert found["duplicate_token"].std() > 0.01
    np.testing.assert_array_equal(found["previous_token"], trace.statistics()["previous_weight"])


def test_the_text_is_a_start_and_ordinary_tokens_twice(random_model):
    tokens = repeated_trace(random_model, length=7).query_tokens()
    assert tokens.is_special == (True, *[False] * 14)
    assert tokens.ids[0] == 0
    assert tokens.ids[1:8] == tokens.ids[8:]
    assert len(set(tokens.ids[1:8])) == 7
    assert min(tokens.ids[1:]) > 1
    again, other = (repeated_trace(random_model, length=7, seed=seed).query_tokens().ids for seed in (0, 1))
    assert again == tokens.ids != other


def test_a_tokenizer_without_a_start_token(random_model):
    tokenizer = circuits.tokenizer()
    tokenizer.bos_token = None
    model = PretrainedModel("startless", random_model.hf_model, tokenizer)
    ids = repeated_trace(model, length=5).query_tokens().ids
    assert len(ids) == 10
    assert ids[:5] == ids[5:]


def test_the_length_fits_the_model(circuit, random_model):
    assert len(repeated_trace(circuit).query_tokens()) == 1 + 2 * 15  # of 31 places
    assert len(repeated_trace(random_model).query_tokens()) == 1 + 2 * 17  # of 17 ordinary words
    assert LENGTH > 17
    for length in (1, 0, 16):
        with pytest.raises(
            OptionError, match=f"2 to 15 tokens to repeat, as many as circuit takes twice, got {length}"
        ):
            repeated_patterns(circuit, length=length)


def test_the_circuit_is_found_and_named(circuit):
    found = repeated_patterns(circuit).set_index("layer")
    assert found.loc[circuits.PREVIOUS, "previous_token"] > 0.95
    assert found.loc[circuits.INDUCTION, "induction"] > 0.95
    assert found.loc[circuits.DUPLICATE, "duplicate_token"] > 0.95
    assert found.loc[[circuits.FIRST, circuits.UNIFORM], [*REPEATED]].max(axis=None) < 0.2
    names = head_names(repeated_patterns(circuit), baseline(repeated_trace(circuit)))
    assert [[name.split(":")[0] for name in one] for one in names] == [
        ["previous-token"],
        ["induction"],
        ["duplicate-token"],
        [],
        [],
    ]


def test_a_window_too_short_to_look_back_gives_nan():
    model = PretrainedModel("window", mistral(sliding_window=5), circuits.tokenizer())
    far = repeated_patterns(model, length=7)
    assert far[["duplicate_token", "induction"]].isna().all(axis=None)
    assert not far["previous_token"].isna().any()
    near = repeated_patterns(model, length=5)
    assert near["duplicate_token"].isna().all()
    assert not near["induction"].isna().any()


def test_progress_is_told(circuit):
    told = []
    repeated_patterns(circuit, length=3, progress=lambda fraction, sentence: told.append((fraction, sentence)))
    assert told == [(None, "Running circuit on 7 tokens")]


def test_who_does_not_read_from_left_to_right_is_refused(circuit):
    encoder = PretrainedModel("tiny-bert", tiny_models.bert(), tiny_models.tokenizer())
    with pytest.raises(OptionError, match=r"such as GPT-2, got tiny-bert with the roles \['encoder'\]"):
        repeated_patterns(encoder)
    both = PretrainedModel("tiny-bart", tiny_models.bart(), tiny_models.tokenizer())
    with pytest.raises(OptionError, match="got tiny-bart with the roles"):
        repeated_patterns(both)
    with pytest.raises(OptionError, match="got 'encoder'"):
        repeated_patterns(circuit, "encoder")


def test_a_model_without_attention_is_refused_with_the_reason():
    model = PretrainedModel("none", circuits.gpt2(), circuits.tokenizer())
    model.support = Support("none", None, "This one has no attention.")
    with pytest.raises(SupportError, match=r"This one has no attention\."):
        repeated_patterns(model)


@pytest.fixture
def path():
    folder = os.environ.get(VARIABLE)
    found = sorted(Path(folder).rglob("*.gguf")) if folder else []
    if not found:
        pytest.skip(f"{VARIABLE} names no folder that holds SmolLM2 as a .gguf file (see .ci/run)")
    return found[0]


def test_a_real_decoder_has_heads_for_repetitions(path):
    """Its strongest heads give repetitions many times what a uniform head would."""
    model = attnviz.load_model(path, device="cpu", dtype="float32")
    trace = repeated_trace(model)
    found, uniform = patterns(trace), baseline(trace).uniform
    for name in REPEATED:
        assert found[name].max() > 10 * uniform[name].max()
        assert (found[name] > 2 * uniform[name]).mean() < 0.5
    np.testing.assert_allclose(found[["duplicate_token", "induction"]], diagonals(trace, LENGTH), atol=5e-5)
