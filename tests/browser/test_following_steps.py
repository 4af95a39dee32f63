"""The Steps page and the Guide, as somebody uses them who learns or teaches."""

import json
import re
from urllib.parse import parse_qs, urlparse

import numpy as np
import pytest
from gestures import settle
from playwright.sync_api import expect

from attnviz.experiment import Experiment, run_experiment

expect.set_options(timeout=60_000)

DOG = "the cat saw the dog"
STEPS = (
    "inputs",
    "queries",
    "keys",
    "values",
    "products",
    "scaled",
    "weights",
    "head_output",
    "concatenated",
    "output",
)


def numbers(page, step):
    """The numbers that a step's figure holds."""
    found = page.locator(f".st-key-step-{step} .js-plotly-plot").evaluate(
        "chart => JSON.stringify(Array.from(chart._fullData[0].z, row => Array.from(row)))"
    )
    return np.array(json.loads(found), dtype=float)


def all_numbers(page):
    expect(page.locator(".st-key-step-output .js-plotly-plot .hm")).to_be_visible()
    settle(page)
    return {step: numbers(page, step) for step in STEPS}


def test_editing_one_entry_of_wq_changes_exactly_what_follows_and_the_address_keeps_it(open_app):
    page = open_app(f"/steps?text={DOG.replace(' ', '+')}&heads=2&dimension=6")
    before = all_numbers(page)
    page.get_by_text("Change W^Q").click()
    grid = page.locator("[class*=st-key-edit-q-] canvas").first
    expect(grid).to_be_visible()
    grid.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    box = grid.bounding_box()
    page.mouse.click(box["x"] + 0.6 * box["width"], box["y"] + 90)
    expect(grid).to_be_focused()  # a frame after the click; a key pressed before that is lost
    page.keyboard.press("Enter")
    number = page.locator("#portal input")
    number.fill("0.5")
    expect(number).to_have_value("0.5")
    number.press("Enter")
    expect(page).to_have_url(re.compile("edits=q"))
    expect(page.get_by_text("1 number is edited")).to_be_visible()
    after = all_numbers(page)
    edits = parse_qs(urlparse(page.url).query)["edits"][0]
    row, column = map(int, re.fullmatch(r"q:(\d)\.(\d)=0\.5", edits).groups())

    edited = run_experiment(Experiment(text=DOG, heads=2, dimension=6, edits=edits))
    plain = run_experiment(Experiment(text=DOG, heads=2, dimension=6))
    assert edited.matrices["q"][row, column] == 0.5
    for step in ("inputs", "keys", "values"):
        assert (after[step] == before[step]).all(), step
    changed = after["queries"] != before["queries"]
    assert changed[:, column].any()
    assert not np.delete(changed, column, axis=1).any()
    assert after["weights"] == pytest.approx(edited.trace.weights(0, 0).numpy(), abs=1e-6)
    assert before["weights"] == pytest.approx(plain.trace.weights(0, 0).numpy(), abs=1e-6)
    first, other = np.split(after["concatenated"] != before["concatenated"], 2, axis=1)
    assert first.any()
    assert not other.any()  # the other head does not read this column

    copy = open_app(page.url.removeprefix(page.url.split("/steps")[0]))
    assert all(np.array_equal(numbers, after[step]) for step, numbers in all_numbers(copy).items())
    copy.get_by_role("button", name="Reset all edits").click()
    expect(copy).not_to_have_url(re.compile("edits=q"))
    expect(copy.get_by_text("1 number is edited")).to_have_count(0)
    reset = all_numbers(copy)
    assert all(np.array_equal(reset[step], before[step]) for step in STEPS)


def test_a_story_is_told_with_the_arrow_keys_and_back_goes_a_step_back(open_app):
    page = open_app("/steps?telling=one+at+a+time&text=one+two+three&heads=2")
    expect(page.locator(".st-key-step-inputs .js-plotly-plot .hm")).to_be_visible()
    settle(page)
    page.wait_for_timeout(500)
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("heading", name="Queries")).to_be_visible()
    settle(page)
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("heading", name="Vectors")).to_be_visible()
    settle(page)
    page.go_back()
    expect(page.get_by_role("heading", name="Queries")).to_be_visible()


def test_the_guide_leads_to_a_page_in_the_right_state(open_app):
    page = open_app("/guide?screen=6")
    expect(page.get_by_role("heading", name="6 · Masks")).to_be_visible()
    settle(page)
    page.get_by_role("button", name="Try it").click()
    expect(page.locator(".st-key-grid canvas.all")).to_be_visible()
    expect(page.get_by_text("Hatched cells are not allowed by the mask.")).to_be_visible()
    assert parse_qs(urlparse(page.url).query)["mask"] == ["causal"]
