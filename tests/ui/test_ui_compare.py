"""The Compare page: both maps are the trace's own, and so are the numbers between them."""

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from attnviz.experiment import Experiment, run_experiment
from attnviz.locations import MINILM
from attnviz.ui import cache
from attnviz.ui.state import Checkpoint

KARINA = "Karina is going to the store"
BIG = "The trophy does not fit in the suitcase because it is too big."
SMALL = BIG.replace("big", "small")


@pytest.fixture(scope="module")
def minilm():
    return cache.model(Checkpoint(MINILM, "auto", "auto", None, remote_code=False))


def maps(page):
    return page.all_numbers("comparison")[:3]


def numbers(page):
    return {metric.label: metric.value for metric in page.app.metric}


def divergence(left, right):
    return np.nanmean([jensenshannon(a, b) ** 2 for a, b in zip(left, right, strict=True)])


def test_at_first_b_is_the_next_head(open_page):
    page = open_page("compare")
    trace = run_experiment(Experiment(text=KARINA)).trace
    a, b = trace.weights(0, 0).numpy(), trace.weights(0, 1).numpy()
    for found, expected in zip(maps(page), (a, b, b - a), strict=True):
        assert found == pytest.approx(expected, abs=1e-6)
    assert numbers(page)["mean JS divergence"] == f"{divergence(a, b):.4f} nats"
    assert numbers(page)["mean total variation"] == f"{np.abs(a - b).sum(1).mean() / 2:.4f}"
    assert numbers(page)["correlation"] == f"{np.corrcoef(a.ravel(), b.ravel())[0, 1]:.3f}"
    assert page.warnings == []


def test_a_module_of_one_head_is_compared_with_itself_without_scaling(open_page):
    page = open_page("compare", module="Self-attention")
    scaled = run_experiment(Experiment(text=KARINA, module="self")).trace.weights(0, 0).numpy()
    plain = run_experiment(Experiment(text=KARINA, module="self", scale=False)).trace.weights(0, 0).numpy()
    a, b, _ = maps(page)
    assert a == pytest.approx(scaled, abs=1e-6)
    assert b == pytest.approx(plain, abs=1e-6)


def test_with_and_without_a_mask_cells_that_one_side_forbids_are_its_loss(open_page):
    page = open_page("compare", head="2")
    page.click("With and without a mask")
    plain = run_experiment(Experiment(text=KARINA)).trace.weights(0, 2).numpy()
    causal = run_experiment(Experiment(text=KARINA, causal=True)).trace.weights(0, 2).numpy()
    a, b, difference = maps(page)
    assert a == pytest.approx(plain, abs=1e-6)
    assert np.isnan(b)[np.triu_indices(6, 1)].all()
    assert difference == pytest.approx(causal - plain, abs=1e-6)


def test_the_trophy_pair_is_laid_over_by_position_and_says_what_differs(open_page, minilm):
    page = open_page("compare", source="Model", layer="2", model_head="5")
    page.click("The trophy: too big, too small")
    left, right = minilm.trace(BIG).weights(2, 5).numpy(), minilm.trace(SMALL).weights(2, 5).numpy()
    a, b, _ = maps(page)
    assert a == pytest.approx(left, abs=1e-6)
    assert b == pytest.approx(right, abs=1e-6)
    assert any("1 differs (big → small)" in caption for caption in page.captions)
    assert "big → small" in page.labels("comparison", "x")
    assert numbers(page)["mean JS divergence"] == f"{divergence(left, right):.4f} nats"
    page.click("Swap A and B")
    assert maps(page)[0] == pytest.approx(right, abs=1e-6)
    assert page.app.text_input(key="sentence").value == SMALL


def test_the_heads_most_like_a_are_one_click_from_being_b(open_page, minilm):
    trace = minilm.trace(BIG)
    here = trace.weights(2, 5).numpy()
    others = {
        (layer, head): divergence(here, trace.weights(layer, head).numpy())
        for layer in range(6)
        for head in range(12)
        if (layer, head) != (2, 5)
    }
    (layer, head), nearest = min(others.items(), key=lambda item: item[1])
    page = open_page("compare", source="Model", layer="2", model_head="5", sentence=BIG)
    page.click(f"layer {layer} head {head} · {nearest:.4f}")
    assert maps(page)[1] == pytest.approx(trace.weights(layer, head).numpy(), abs=1e-6)
    assert (page.app.get_by_key("pick-layer-b").value, page.app.get_by_key("pick-head-b").value) == (layer, head)
    (_, _), farthest = max(others.items(), key=lambda item: item[1])
    assert any(button.label.endswith(f"· {farthest:.4f}") for button in page.app.button)


def test_the_mean_of_a_layer_is_compared_with_one_head(open_page):
    page = open_page("compare", average="this layer")
    trace = run_experiment(Experiment(text=KARINA)).trace
    a, b, _ = maps(page)
    assert a == pytest.approx(np.mean([trace.weights(0, head).numpy() for head in range(4)], axis=0), abs=1e-6)
    assert b == pytest.approx(trace.weights(0, 1).numpy(), abs=1e-6)


def test_texts_that_cannot_be_laid_over_each_other_by_words_are_shown_apart(open_page):
    page = open_page("compare", align="words", b="text=two+words&head=1")
    assert page.warnings == ["Expected texts of as many words, got neither that nor the same text. Align by position."]
    assert page.numbers("apart-0").shape == (6, 6)
    assert page.numbers("apart-1").shape == (2, 2)
    page.change(align="position")
    assert maps(page)[0].shape == (2, 2)
    page.change(align="none")
    assert page.numbers("apart-1").shape == (2, 2)
    assert page.warnings == []


def test_an_empty_text_of_b_gives_a_sentence_and_keeps_a(open_page):
    page = open_page("compare")
    page.change(**{"b-text": " "})
    assert len(page.warnings) == 1
    assert "Type a sentence" in page.warnings[0]
    assert "comparison" not in page.figures()
    assert page.app.get_by_key("pick-head-a").value == 0


def test_a_model_of_b_that_is_not_here_is_asked_for_first(open_page):
    page = open_page("compare", source="Model", b="checkpoint=someone%2Felse&layer=0&model_head=1")
    assert any("someone/else is not on this machine" in hint for hint in page.hints)
    assert "comparison" not in page.figures()


def test_marked_heads_stand_side_by_side_on_one_scale(open_page, minilm):
    page = open_page("compare", source="Model", sentence=BIG, marked="3.1 0.2 5.11 9.9")
    trace = minilm.trace(BIG)
    found = page.all_numbers("marked-heads")
    for weights, place in zip(found, [(3, 1), (0, 2), (5, 11)], strict=True):
        assert weights == pytest.approx(trace.weights(*place).numpy(), abs=1e-6)
    titles = [note["text"] for note in page.figures()["marked-heads"]["layout"]["annotations"]]
    assert titles[:3] == ["layer 3, head 1", "layer 0, head 2", "layer 5, head 11"]


def test_words_and_what_is_hidden_apply_here_too(open_page):
    page = open_page("compare", source="Model", sentence=BIG, hide_special="true", words="true")
    assert page.labels("comparison", "y")[:2] == ["The", "trophy"]
    assert maps(page)[0].sum(1).max() < 1


def test_maps_that_are_too_long_give_a_sentence(open_page):
    page = open_page("compare", text="word " * 300)
    assert any("Compare shorter texts" in warning for warning in page.warnings)
