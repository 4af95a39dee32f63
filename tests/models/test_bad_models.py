"""What goes wrong with a model is said in one sentence: what was expected, what came, what to do next."""

import time

import pytest
import tiny_models
import torch
import zoo

import attnviz
from attnviz.errors import AttnvizError, LoadError, OptionError, SupportError

NOBODY = "http://127.0.0.1:9"  # no server listens there
WAIT = 20  # seconds in which a person expects to hear that there is no network


@pytest.fixture
def folder(tmp_path):
    return tiny_models.save(tiny_models.bert(), tmp_path / "model")


@pytest.fixture(params=["offline", "unreachable"])
def no_network(request, monkeypatch, tmp_path):
    """An empty cache, and the hub out of reach: by choice, or because nobody answers."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", request.param == "offline")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", NOBODY)


def assert_sentence(message, *parts):
    """One line that starts and ends like a sentence, speaks of no exception, and holds the parts."""
    assert message.splitlines() == [message]
    assert message.endswith(".")
    assert not message.endswith("..")
    assert message[0].isupper() or message[0] in "'/"
    assert "Traceback" not in message
    assert len(message) < 600
    for part in parts:
        assert part in message, message


def refused(kind, load, *parts):
    """The sentence with which a call is refused."""
    with pytest.raises(AttnvizError) as error:
        load()
    assert type(error.value) is kind
    assert_sentence(str(error.value), *parts)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("", ["name on the Hugging Face hub", "got ''", "give the name alone"]),
        ("two words", ["'two words'", "give the name alone"]),
        ("https://host/owner/name", ["without address"]),
        ("./mine", ["found none", "check the path"]),
        ("/no/such/model", ["/no/such/model", "found none", "check the path"]),
        ("missing.gguf", ["missing.gguf", "found none", "check the path"]),
    ],
)
def test_a_wrong_name(name, parts):
    refused(LoadError, lambda: attnviz.load_model(name, device="cpu"), *parts)


def test_without_a_network_a_name_fails_soon(no_network):
    start = time.monotonic()
    refused(
        LoadError,
        lambda: attnviz.load_model("owner/typo", device="cpu"),
        "'owner/typo'",
        "cannot be reached",
        "check the name and the network",
    )
    assert time.monotonic() - start < WAIT


def test_an_empty_folder(tmp_path):
    refused(LoadError, lambda: attnviz.load_model(tmp_path), "config.json", str(tmp_path), "choose the folder")


def test_a_folder_with_a_configuration_alone(folder):
    (folder / "model.safetensors").unlink()
    refused(LoadError, lambda: attnviz.load_model(folder), "weights", str(folder), "save or download")


def test_a_folder_without_a_tokenizer(tmp_path):
    tiny_models.bert().save_pretrained(tmp_path)
    refused(LoadError, lambda: attnviz.load_model(tmp_path), "tokenizer.json", "save the tokenizer beside the model")


def test_a_tokenizer_with_more_words_than_the_model(tmp_path):
    """The model knows all words of the sentence that the self-check uses, but not all of the tokenizer's."""
    words = len(tiny_models.WORDS)
    folder = tiny_models.save(tiny_models.bert(), tmp_path / "model")
    smaller = tiny_models.bert()
    smaller.resize_token_embeddings(words - 1)
    smaller.save_pretrained(folder)
    refused(
        LoadError,
        lambda: attnviz.load_model(folder, device="cpu"),
        f"the id {words - 1}",
        f"0 to {words - 2}",
        "Take both from the same place",
    )


def test_a_text_longer_than_the_model_takes(folder):
    model = attnviz.load_model(folder, device="cpu")
    assert model.max_length == 13
    trace = model.trace("the cat saw the dog " * 4)
    assert len(trace.query_tokens()) == 13
    (notice,) = trace.notices
    assert_sentence(notice, "Shortened to 13 of 22 tokens", "limit")
    assert model.trace("the cat saw the dog").notices == ()


def test_nan_in_half_precision(tmp_path):
    """Queries over 65504, the largest number of float16, with keys so small that float32 has ordinary scores."""
    large = tiny_models.bert()
    with torch.no_grad():
        for layer in large.encoder.layer:
            layer.attention.self.query.weight.sign_().mul_(6e4)
            layer.attention.self.key.weight.mul_(1e-4)
    folder = tiny_models.save(large, tmp_path / "model")
    model = attnviz.load_model(folder, device="cpu", dtype="float16")
    assert model.dtype == torch.float16
    assert not model.support.exact
    assert_sentence(model.support.reason, "NaN", "float16", "float32")
    refused(SupportError, lambda: model.trace("the cat"), "NaN", "float16", "float32")
    assert attnviz.load_model(folder, device="cpu", dtype="float32").support.exact  # what the sentence advises


def test_scores_too_large_for_their_numbers(tmp_path):
    """Scores of about 1e9, where neighbouring numbers of float32 are 64 apart."""
    large = tiny_models.bert()
    with torch.no_grad():
        for layer in large.encoder.layer:
            layer.attention.self.query.weight.mul_(3e5)
            layer.attention.self.key.weight.mul_(3e5)
    model = attnviz.load_model(tiny_models.save(large, tmp_path / "model"), device="cpu")
    assert not model.support.exact
    assert_sentence(model.support.reason, "so large that float32 cannot tell them apart", "choose another model")


@pytest.mark.parametrize("kind", ["mamba", "rwkv"])
def test_a_model_without_attention(kind, tmp_path):
    model = zoo.tiny_model(zoo.tiny_config(kind, vocab_size=len(tiny_models.WORDS)))
    model = attnviz.load_model(tiny_models.save(model, tmp_path / kind), device="cpu")
    assert (model.support.how, model.support.exact, model.roles) == ("none", False, ())
    assert_sentence(model.support.reason, "No attention", "Choose another model")
    refused(SupportError, lambda: model.trace("the cat"), "No attention", "Choose another model")


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "tpu", ""])
def test_a_device_that_is_not_there(folder, device):
    refused(OptionError, lambda: attnviz.load_model(folder, device=device), repr(device), "cpu")


@pytest.mark.parametrize("dtype", ["int8", "half", "", 16])
def test_a_dtype_that_is_not_one(folder, dtype):
    refused(OptionError, lambda: attnviz.load_model(folder, device="cpu", dtype=dtype), repr(dtype), "float32", "auto")


def test_a_revision_of_a_folder(folder):
    refused(OptionError, lambda: attnviz.load_model(folder, revision="v2"), "leave the revision out")
