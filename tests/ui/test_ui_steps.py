"""The Steps page: the numbers of each step are torch's, an edit changes what follows and nothing else."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional

from attnviz.experiment import ARTICLE_EXAMPLE, Experiment, run_experiment
from attnviz.locations import MINILM
from attnviz.ui import cache
from attnviz.ui.pages import steps as page_steps
from attnviz.ui.state import Checkpoint

ARTICLE = {
    "text": "karina is to the store",
    "module": "Self-attention",
    "embedding": "The article's vectors",
    "weights": "identity",
}
DOG = "the cat saw the dog"
ANIMAL = "The animal didn't cross the street because it was too tired."


def steps_of(page):
    """The numbers of each step by its key."""
    return {key.removeprefix("step-"): page.numbers(key) for key in page.figures() if key.startswith("step-")}


def test_every_step_of_the_articles_example_is_torchs(open_page):
    found = steps_of(open_page("steps", **ARTICLE))
    x = run_experiment(ARTICLE_EXAMPLE).matrices["x"]
    weights = functional.softmax(x @ x.T / 2**0.5, dim=-1)
    expected = {"inputs": x, "queries": x, "keys": x, "values": x, "products": x @ x.T, "scaled": x @ x.T / 2**0.5}
    expected |= {"weights": weights, "head_output": functional.scaled_dot_product_attention(x, x, x)}
    assert set(expected) <= set(found)
    for key, matrix in expected.items():
        assert found[key] == pytest.approx(matrix.numpy(), abs=1e-6), key


def test_the_chosen_cell_is_written_out(open_page):
    page = open_page("steps", **ARTICLE, row="4", column="3")
    lines = [line.value.replace("\\", "") for line in page.app.markdown]
    x = run_experiment(ARTICLE_EXAMPLE).matrices["x"]
    weight = functional.softmax(x @ x.T / 2**0.5, dim=-1)[4, 3]
    assert any("q·k = 0.50·1.00 + 1.00·1.00 = 1.50" in line for line in lines)
    assert any(f"= {weight:.2f}" in line and "Σ" in line for line in lines)


def test_an_edit_changes_what_follows_and_is_marked(open_page):
    plain = steps_of(open_page("steps", text=DOG, heads="2", dimension="6"))
    page = open_page("steps", text=DOG, heads="2", dimension="6", edits="q:0.1=0.5")
    edited = steps_of(page)
    for key in ("inputs", "keys", "values"):
        assert (edited[key] == plain[key]).all(), key
    changed = edited["queries"] != plain["queries"]
    assert changed[:, 1].any()
    assert not changed[:, [0, 2]].any()
    for key in ("products", "weights", "head_output"):
        assert (edited[key] != plain[key]).any(), key
    corners = [trace for trace in page.figures()["step-queries"]["data"] if trace.get("mode") == "markers"]
    assert len(corners) == 1
    assert any("1 number is edited" in caption for caption in page.captions)
    page.click("Reset all edits")
    after = steps_of(page)
    assert all((after[key] == plain[key]).all() for key in plain)
    assert page.app.text_input(key="edits").value == ""


def test_an_edit_of_the_mask_takes_the_key_away(open_page):
    found = steps_of(open_page("steps", text=DOG, heads="2", dimension="6", edits="mask:3.1=0"))
    assert np.isnan(found["weights"][3, 1])
    assert np.nansum(found["weights"][3]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("path", ["steps", "", "compare"])
@pytest.mark.parametrize("edits", ["x:99.0=1", "nonsense", "q:0.0=1e9", "mask:0.0=0.5"])
def test_an_edit_that_does_not_fit_gives_a_sentence_and_a_way_out(open_page, path, edits):
    page = open_page(path, text=DOG, edits=edits)
    assert page.figures() == {}
    assert len(page.warnings) == 1
    assert page.warnings[0].startswith("Expected")
    page.click("Reset all edits")
    assert page.warnings == []
    assert page.figures()


def test_other_pages_show_the_edited_module(open_page):
    page = open_page(text=DOG, heads="2", dimension="6", edits="q:0.1=5;q:0.0=-5")
    trace = run_experiment(Experiment(text=DOG, heads=2, dimension=6, edits="q:0.1=5;q:0.0=-5")).trace
    assert page.numbers("open-head") == pytest.approx(trace.weights(0, 0).numpy(), abs=1e-6)


def test_a_story_shows_one_step_at_a_time(open_page):
    page = open_page("steps", **ARTICLE, telling="one at a time")
    assert list(steps_of(page)) == ["inputs"]
    page.click("Next")
    assert list(steps_of(page)) == ["queries"]
    page.click("Back")
    assert list(steps_of(page)) == ["inputs"]
    last = open_page("steps", **ARTICLE, telling="one at a time", step="99")
    assert list(steps_of(last)) == ["head_output"]
    assert next(button for button in last.app.button if button.label == "Next").disabled


def test_the_steps_of_a_model_multiply_out_to_its_weights_and_its_output(open_page):
    trace = cache.model(Checkpoint(MINILM, "auto", "auto", None, remote_code=False)).trace(ANIMAL)
    page = open_page("steps", source="Model", layer="3", model_head="1", row="10", column="2")
    found = {key: torch.tensor(matrix) for key, matrix in steps_of(page).items()}
    scores = found["queries"] @ found["keys"].T / 32**0.5
    assert scores.softmax(-1).numpy() == pytest.approx(trace.weights(3, 1).numpy(), abs=1e-5)
    output = found["weights"] @ found["values"]
    assert output.numpy() == pytest.approx(trace.head_output(3, 1).numpy(), abs=1e-5)
    assert found["weights"][10, 2].item() == pytest.approx(0.677, abs=5e-4)
    products = page.app.dataframe[0].value
    assert products["product"].sum() == pytest.approx(float(found["queries"][10] @ found["keys"][2]), abs=1e-4)
    assert products["product"].abs().is_monotonic_decreasing


def test_the_steps_of_a_translator_begin_with_two_texts(open_page, translator):
    page = open_page(
        "steps", source="Model", checkpoint=translator, sentence="the cat saw", target="it was", role="cross"
    )
    assert page.warnings == []
    assert {"queries", "keys", "weights"} <= set(steps_of(page))


def test_a_long_text_is_refused_in_a_sentence(open_page):
    page = open_page("steps", text="word " * 200)
    assert any("Use a shorter text here." in warning for warning in page.warnings)


def test_the_spread_of_scores_is_shown_up_to_the_chosen_size(open_page):
    page = open_page("steps", lesson="Why √d")
    assert "spread" in page.figures()
    table = page.app.dataframe[0].value
    assert set(table["dimension"]) >= {2, 64, 1024}
    for row in table.itertuples():
        assert abs(row.variance - (1 if row.scaled else row.dimension)) < 6 * row.variance_error
    columns = json.loads(page.app.dataframe[0].proto.columns)
    assert set(table.columns) <= set(columns)  # none is called what the program calls it
    errors = {columns[name]["label"] for name in table.columns if name.endswith("_error")}
    assert errors == {"± one standard error"}


def test_more_heads_are_less_alike(open_page):
    page = open_page("steps", lesson="Why several heads", text=DOG)
    table = page.app.dataframe[0].value
    assert table["heads"].tolist() == [1, 2, 4, 8]
    assert np.isnan(table["divergence"].iloc[0])
    assert (table["divergence"].iloc[1:] > 0).all()
    assert len(page.all_numbers("diversity")) == 8


@pytest.mark.parametrize(
    ("typed", "part"),
    [(None, "got nan"), (1e9, "from −1,000,000 to 1,000,000"), (0.25, "")],
    ids=["emptied", "too large", "fine"],
)
def test_a_bad_entry_is_refused_in_a_sentence_and_the_number_before_is_kept(monkeypatch, typed, part):
    outcome = run_experiment(Experiment(text=DOG, heads=2, dimension=6))
    values, session = {"edits": "k:0.0=1"}, {"table": {"edited_rows": {"2": {"1": typed}}}}
    monkeypatch.setattr(page_steps.state, "get", values.__getitem__)
    monkeypatch.setattr(page_steps.state, "set_values", values.update)
    monkeypatch.setattr(page_steps.st, "session_state", session)
    matrix = outcome.matrices["q"][:, :3]
    page_steps._take_edits("table", "q", matrix, ["0", "1", "2"], outcome.unedited, 0)
    if part:
        assert part in session["edit-refused"]
        assert values["edits"] == "k:0.0=1"
    else:
        assert values["edits"] == "q:2.1=0.25;k:0.0=1"
        assert "edit-refused" not in session
