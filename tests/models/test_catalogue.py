"""The catalogue of models, and which of them a machine is said to have."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pandas as pd
import pytest

import attnviz
from attnviz.locations import MINILM, MINILM_PACKAGE
from attnviz.models import catalogue
from attnviz.models.catalogue import CATALOGUE, cached_models, list_models

COMMIT = "5" * 40
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 5, "n_head": 7, "vocab_size": 11}
WEIGHTS = {"model.safetensors": b"0" * 3_000_000}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def put(cache, name, config=GPT2, files=WEIGHTS, commit=COMMIT):
    """Lays a model into a cache the way huggingface_hub does."""
    folder = cache / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    config = config if isinstance(config, str) else json.dumps(config)
    for path, content in {"config.json": config.encode(), **files}.items():
        (snapshot / path).write_bytes(content)


def here():
    frame = list_models()
    return set(frame.name[frame.on_this_machine]) - {MINILM}


def test_the_catalogue_is_sane():
    names = [entry.name for entry in CATALOGUE]
    assert names[0] == MINILM
    assert len(set(names)) == len(names)
    for entry in CATALOGUE:
        assert entry.heads % entry.key_heads == 0
        assert set(entry.roles) <= {"encoder", "decoder", "cross"}
        assert (entry.encoder_layers is not None) == (entry.encoder_heads is not None) == ("cross" in entry.roles)
        assert entry.licence
        assert entry.note.endswith(".")
        assert not entry.on_this_machine
        # Two or four bytes for each parameter, and in some files a head or masks that the model does not use.
        assert 1.99 < entry.megabytes * 1e6 / entry.parameters < 4.5
    assert {entry.name for entry in CATALOGUE if entry.gated} == {"meta-llama/Llama-3.2-1B", "google/gemma-3-270m"}


def test_the_list_as_a_frame(cache):
    frame = attnviz.list_models()
    assert list(frame.name) == [entry.name for entry in CATALOGUE]
    kinds = frame.dtypes.astype(str)
    assert kinds["gated"] == kinds["on_this_machine"] == "bool"
    assert kinds["layers"] == kinds["parameters"] == kinds["encoder_layers"] == "Int64"
    rows = frame.set_index("name")
    columns = ["layers", "heads", "key_heads", "encoder_layers", "encoder_heads"]
    assert rows.loc["google-t5/t5-small", columns].tolist() == [6, 8, 8, 6, 8]
    assert rows.loc["Qwen/Qwen3-0.6B", columns[:3]].tolist() == [28, 16, 8]
    assert rows.loc["Qwen/Qwen3-0.6B", "encoder_layers"] is pd.NA
    assert rows.loc["facebook/bart-base", "roles"] == ("encoder", "decoder", "cross")


@pytest.mark.skipif(find_spec(MINILM_PACKAGE) is None, reason="MiniLM's package is not installed")
def test_minilm_is_here_without_a_cache(cache):
    first = list_models().iloc[0]
    assert (first["name"], first["on_this_machine"]) == (MINILM, True)


def test_minilm_from_the_cache_when_its_package_is_missing(cache, monkeypatch):
    monkeypatch.setattr("attnviz.locations._minilm_folder", lambda: None)
    assert not list_models().on_this_machine.any()
    put(cache, MINILM)
    assert list_models().iloc[0]["on_this_machine"]


def test_models_of_the_cache_come_first(cache):
    put(cache, "google-t5/t5-small")
    put(cache, "owner/mine")
    put(cache, "gpt2")
    frame = list_models()
    assert here() == {"google-t5/t5-small", "owner/mine", "gpt2"}
    assert frame.on_this_machine.is_monotonic_decreasing
    assert frame.name.is_unique
    mine = frame.set_index("name").loc["owner/mine"]
    assert mine[["family", "roles", "layers", "heads", "key_heads", "megabytes"]].tolist() == [
        *("gpt2", ("decoder",), 5, 7, 7, 3)
    ]
    assert mine["parameters"] is pd.NA
    assert frame.set_index("name").loc["google-t5/t5-small", "layers"] == 6


INDEX = json.dumps({"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}).encode()
HALF = {"model.safetensors.index.json": INDEX, "model-1-of-2.safetensors": b"0"}


@pytest.mark.parametrize(
    ("files", "complete"),
    [
        ({"pytorch_model.bin": b"0"}, True),
        ({}, False),
        ({"tokenizer.json": b"{}"}, False),
        (HALF, False),
        ({**HALF, "model-2-of-2.safetensors": b"0"}, True),
        ({"model.safetensors.index.json": b"no json", **WEIGHTS}, True),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": [1]}}'}, False),
    ],
)
def test_only_a_complete_model_is_here(cache, files, complete):
    put(cache, "openai-community/gpt2", files=files)
    put(cache, "owner/mine", files=files)
    assert here() == ({"openai-community/gpt2", "owner/mine"} if complete else set())


def test_another_revision_is_not_the_main_one(cache):
    put(cache, "openai-community/gpt2", commit="6" * 40)
    assert here() == set()


def test_a_link_that_leads_nowhere_is_no_file(cache):
    put(cache, "openai-community/gpt2", files={})
    snapshot = cache / "models--openai-community--gpt2" / "snapshots" / COMMIT
    (snapshot / "model.safetensors").symlink_to(cache / "gone")
    assert here() == set()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {
                **{"model_type": "bart", "is_encoder_decoder": True, "vocab_size": 11, "num_hidden_layers": 3},
                **{"encoder_layers": 3, "decoder_layers": 5, "encoder_attention_heads": 2},
                "decoder_attention_heads": 7,
            },
            (("encoder", "decoder", "cross"), 5, 7, 7, 3, 2),
        ),
        (
            {
                **{"model_type": "t5", "is_encoder_decoder": True, "vocab_size": 11},
                **{"num_layers": 3, "num_decoder_layers": 5, "num_heads": 7},
            },
            (("encoder", "decoder", "cross"), 5, 7, 7, 3, 7),
        ),
        (
            {
                **{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 11},
                **{"num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 2},
            },
            (("decoder",), 5, 6, 2, None, None),
        ),
        (
            {"model_type": "roberta", "architectures": ["RobertaModel"], "vocab_size": 11}
            | {"num_hidden_layers": 5, "num_attention_heads": 7},
            (("encoder",), 5, 7, 7, None, None),
        ),
        (
            {"model_type": "new", "vocab_size": 11, "num_hidden_layers": 5, "num_attention_heads": 7},
            ((), 5, 7, 7, None, None),
        ),
    ],
)
def test_what_a_config_says(cache, config, expected):
    put(cache, "owner/mine", config)
    (entry,) = cached_models()
    found = (entry.roles, entry.layers, entry.heads, entry.key_heads, entry.encoder_layers, entry.encoder_heads)
    assert found == expected


@pytest.mark.parametrize(
    "config",
    [
        "no json",
        "[]",
        "[" * 100_000,
        "{}",
        {"model_type": "vit", "num_hidden_layers": 5, "num_attention_heads": 7, "image_size": 224},
        {**GPT2, "vision_config": {}},
        {**GPT2, "num_mel_bins": 80},
        {**GPT2, "n_head": [7, 7, 5]},
        {**GPT2, "n_layer": True},
        {**GPT2, "id2label": "x" * 1_000_000},
    ],
)
def test_a_config_that_describes_no_text_model_is_passed_over(cache, config):
    put(cache, "owner/mine", config)
    assert cached_models() == ()


def test_a_cache_with_odd_things_in_it(cache):
    (cache / "models--file").write_text("a file")
    (cache / "models--owner--empty").mkdir()
    (cache / "datasets--owner--rows").mkdir()
    put(cache, "owner/mine/too")
    put(cache, "owner/mine")
    assert [entry.name for entry in cached_models()] == ["owner/mine"]
    assert here() == {"owner/mine"}


def test_no_cache_at_all(cache, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache / "none"))
    assert here() == set()


def test_a_large_cache_is_cut_short(cache, monkeypatch):
    monkeypatch.setattr(catalogue, "MOST_CACHED", 3)
    for number in range(5):
        put(cache, f"owner/model-{number}", files={"model.safetensors": b"0"})
    assert [entry.name for entry in cached_models()] == ["owner/model-0", "owner/model-1", "owner/model-2"]
    monkeypatch.setattr(catalogue, "MOST_FOLDERS", 2)
    assert len(cached_models()) == 2


def test_a_list_does_not_load_transformers():
    code = "import sys, attnviz; attnviz.list_models(); assert 'transformers' not in sys.modules"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
