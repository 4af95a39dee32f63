"""The Statistics page: every number in it is the analysis's own."""

import numpy as np
import pandas as pd
import pytest

from attnviz.analysis.rollout import rollout
from attnviz.experiment import Experiment, run_experiment
from attnviz.locations import MINILM
from attnviz.ui import cache
from attnviz.ui.numbers import NUMBERS
from attnviz.ui.state import Checkpoint

DOG = "the cat saw the dog because the dog was loud"
ANIMAL = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="module")
def animal():
    return cache.model(Checkpoint(MINILM, "auto", "auto", None, remote_code=False)).trace(ANIMAL)


def table(page, at=0):
    return page.app.dataframe[at].value


def test_the_table_holds_every_statistic_and_pattern_of_every_head(open_page, animal):
    page = open_page("statistics", source="Model")
    found, expected = table(page), animal.statistics()
    pd.testing.assert_frame_equal(found[list(expected.columns)], expected)
    assert set(found) == {"layer", "head", "name", *NUMBERS}
    assert found.loc[(found["layer"] == 0) & (found["head"] == 2), "name"].item() == "previous-token: 1.00"
    assert (found["name"] == "").sum() > 36


def test_the_scatter_shows_the_chosen_numbers_and_the_open_head(open_page, animal):
    page = open_page(
        "statistics", source="Model", across="peak_weight", upward="first_weight", layer="4", model_head="7"
    )
    heads, opened = page.figures()["scatter"]["data"]
    expected = animal.statistics().set_index(["layer", "head"])
    assert len(heads["customdata"]) == 71
    assert opened["customdata"][0][:2] == [4, 7]
    from_page = page.all_points("scatter")
    for (layer, head), (x, y) in from_page.items():
        assert (x, y) == pytest.approx(expected.loc[(layer, head), ["peak_weight", "first_weight"]].tolist(), abs=1e-6)


def test_the_table_can_be_filtered(open_page):
    page = open_page("statistics", source="Model")
    page.change(**{"filter-named": True})
    assert len(table(page)) > 0
    assert (table(page)["name"] != "").all()
    page.change(**{"filter-named": False, "filter-number": "peak_weight", "filter-least": 0.9})
    assert (table(page)["peak_weight"] >= 0.9).all()
    page.change(**{"filter-layers": [0]})
    assert set(table(page)["layer"]) <= {0}


def test_the_boxes_open_a_head_beside_the_scatter(open_page, animal):
    page = open_page("statistics", source="Model")
    page.change(**{"pick-head": 5})
    assert page.numbers("open-head") == pytest.approx(animal.weights(3, 5).numpy(), abs=1e-6)


def test_likeness_shows_the_distances_in_the_order_of_the_tree(open_page):
    page = open_page("statistics", topic="Likeness", text=DOG)
    distances = page.numbers("distances")
    assert distances.shape == (4, 4)
    assert np.abs(np.diag(distances)).max() == 0
    assert len(page.all_points("plane")) == 4


def test_a_module_of_one_head_has_no_likeness(open_page):
    page = open_page("statistics", topic="Likeness", module="Self-attention")
    assert page.figures() == {}
    assert any("one head" in caption for caption in page.captions)


@pytest.mark.parametrize("counted", ["alike", "by peak weight"])
def test_averages_are_means_over_the_heads(open_page, counted):
    page = open_page("statistics", topic="Averages", text=DOG, counted=counted)
    trace = run_experiment(Experiment(text=DOG)).trace
    counts = np.ones(4) if counted == "alike" else trace.statistics()["peak_weight"].to_numpy()
    maps = np.stack([trace.weights(0, head).numpy() for head in range(4)])
    assert page.numbers("mean") == pytest.approx(np.average(maps, axis=0, weights=counts), abs=1e-6)


def test_an_average_over_what_heads_write_counts_by_the_norms(open_page):
    page = open_page("statistics", topic="Averages", text=DOG, counted="by what it writes", averaged="every head")
    assert page.numbers("mean").sum(1) == pytest.approx(np.ones(10), abs=1e-5)
    assert page.warnings == []


def test_rollout_goes_up_to_the_chosen_layer(open_page, animal):
    page = open_page("statistics", source="Model", topic="Rollout")
    assert page.numbers("rollout") == pytest.approx(rollout(animal).matrix.numpy(), abs=1e-6)
    page.change(**{"pick-upto": 2})
    assert page.numbers("rollout") == pytest.approx(rollout(animal, layers=[0, 1, 2]).matrix.numpy(), abs=1e-6)
    page.change(**{"from": 7})
    found = table(page)
    assert found["rollout"].to_numpy() == pytest.approx(rollout(animal, layers=[0, 1, 2]).matrix[7].numpy(), abs=1e-6)
    assert found["flow"].between(0, 1).all()


def test_norms_stand_beside_the_weights(open_page, animal):
    page = open_page("statistics", source="Model", topic="Norms", layer="3", model_head="1")
    layer = animal.layer(3)
    values = layer.value[1].float() @ layer.projection.weight[:, 32:64].float().T
    norms = animal.weights(3, 1) * values.norm(dim=-1)
    assert page.numbers("open-head") == pytest.approx(animal.weights(3, 1).numpy(), abs=1e-6)
    assert page.numbers("norms") == pytest.approx(norms.numpy(), abs=1e-5)


@pytest.mark.parametrize("topic", ["Table", "Likeness", "Averages", "Rollout", "Norms"])
@pytest.mark.parametrize(
    "address",
    [
        {"text": "alone"},
        {"module": "Cross-attention"},
        {"module": "Multi-head cross-attention", "text": "le chat", "context": "the black cat"},
        {"text": "word " * 300},
        {"text": DOG, "mask": "causal", "hide_first": "true", "hide_punctuation": "true"},
    ],
    ids=["one token", "cross", "two lengths", "long", "hidden"],
)
def test_every_topic_holds_for_every_kind_of_module(open_page, topic, address):
    page = open_page("statistics", topic=topic, **address)
    assert all(warning.startswith(("Expected", "Flow")) for warning in page.warnings)


def test_hiding_changes_no_statistic(open_page):
    plain = table(open_page("statistics", text=DOG))
    hidden = table(open_page("statistics", text=DOG, hide_first="true", cut="300", normalise="true"))
    pd.testing.assert_frame_equal(plain, hidden)
