"""The sidebar: which controls are shown, and what it says of a model before and after it is loaded."""

import pytest

from attnviz.errors import LoadError
from attnviz.ui.state import EXAMPLES, FIELDS, SHOWN

ELSEWHERE = "someone/not-on-this-machine"
COMMON = {"source", "device", "ink", "view", "marked", *SHOWN}
MODEL = {"checkpoint", "sentence", "dtype", "revision", "remote_code"}


@pytest.fixture
def asked(monkeypatch):
    """Loads that were asked for; each fails at once."""
    names = []

    def load(name, **options):
        names.append((name, options["revision"]))
        raise LoadError(f"Could not load {name}.")

    monkeypatch.setattr("attnviz.ui.cache.load_model", load)
    return names


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ({}, {"text", "module", "embedding", "heads", "dimension", "positions", "mask", "weights", "scale", "seed"}),
        (
            {"module": "Cross-attention", "embedding": "The article's vectors", "text": "karina", "context": "is to"},
            {"text", "context", "module", "embedding", "positions", "weights", "scale", "seed"},
        ),
        (
            {"module": "Self-attention", "embedding": "Pretrained: input embeddings"},
            {"text", "module", "embedding", "model", "positions", "mask", "weights", "scale", "seed"},
        ),
        ({"source": "Model"}, MODEL | {"pair"}),
    ],
)
def test_the_controls_that_apply_are_shown_and_the_rest_is_drawn_hidden(open_page, address, shown):
    page = open_page(**address)
    assert page.fields() == (shown | COMMON, set(FIELDS) - shown - COMMON)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_one_click(open_page, name):
    page = open_page(device="cpu", head="3")
    page.click(name)
    assert page.warnings == []
    for key, value in EXAMPLES[name].items():
        assert page.app.get_by_key(key).value == value, key
    assert page.app.selectbox(key="device").value == "cpu"
    assert page.opened.endswith("head 0")


def test_a_loaded_model_is_described(open_page):
    page = open_page(source="Model")
    words = page.captions[-1]
    assert words.startswith("Exact through the attention interface (max difference from the model's own numbers ")
    assert words.endswith("encoder: 6 layers × 12 heads; 22.7 M parameters, float32 on cpu, up to 512 tokens.")


def test_an_address_s_way_of_loading_is_taken_from_the_first_run_on(open_page, asked):
    page = open_page(source="Model", dtype="bfloat16", device="cpu", checkpoint="/no/model")
    assert asked == [("/no/model", None)]  # not once more, with another dtype, when the controls are drawn
    assert page.app.selectbox(key="dtype").value == "bfloat16"


@pytest.mark.parametrize("path", ["", "vectors"])
def test_a_model_that_is_not_on_this_machine_is_asked_for_first(open_page, asked, path):
    page = open_page(path, source="Model", checkpoint=ELSEWHERE)
    assert asked == []
    assert page.hints == ["Load the model on the left, or choose one that is on this machine."]
    assert page.figures() == {}
    assert any(f"{ELSEWHERE} is not on this machine. Loading it downloads" in caption for caption in page.captions)
    page.run()
    assert asked == []
    page.click("Load it")
    assert asked == [(ELSEWHERE, None)]  # the page does not try once more after the sidebar
    assert page.warnings == [f"Could not load {ELSEWHERE}."]
    assert page.hints == ["There is no model to look at yet; the sidebar says why."]
    page.change(dtype="float32")  # was not allowed
    assert len(asked) == 1


def test_a_size_that_the_catalogue_knows_is_said(open_page, asked):
    page = open_page(source="Model", checkpoint="openai-community/gpt2")
    assert asked == []
    assert any("downloads about 548 MB" in caption for caption in page.captions)


def test_another_revision_of_a_model_on_this_machine_is_asked_for_first(open_page, asked):
    page = open_page(source="Model", revision="v2*")
    assert asked == []
    assert any("Revision v2* of sentence-transformers/all-MiniLM-L6-v2" in caption for caption in page.captions)
    page.click("Load it")
    assert asked == [("sentence-transformers/all-MiniLM-L6-v2", "v2*")]


def test_a_failed_load_is_tried_again_in_the_next_run(open_page, asked):
    page = open_page(source="Model", checkpoint="/no/model")
    page.run()
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("name", "part"),
    [
        (" ", "Expected a name on the Hugging Face hub"),
        ("two words", "got 'two words'"),
        ("<b>*_$5 :smile:", "got '<b>*_$5 :smile:'"),
        ("a\0b", "Expected a name"),
        ("/no/such/folder", "/no/such/folder and found none"),
        ("model.gguf", "Looked for the file model.gguf"),
        ("~nobody-here/model", "got one that cannot be"),
        ("a" * 300, "got one that cannot be"),
    ],
)
def test_a_wrong_name_gives_a_sentence_and_stays(open_page, name, part):
    page = open_page(source="Model", checkpoint=name)
    assert len(page.warnings) == 1
    assert part in page.warnings[0]
    assert page.hints == ["There is no model to look at yet; the sidebar says why."]
    assert page.app.selectbox(key="checkpoint").value == name


def test_a_folder_without_a_model_gives_a_sentence(open_page, tmp_path):
    page = open_page(source="Model", checkpoint=str(tmp_path))
    assert len(page.warnings) == 1
    assert page.warnings[0].startswith(f"Looked for config.json in the folder {tmp_path} and found none")
