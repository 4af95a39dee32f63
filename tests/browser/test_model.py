"""A pretrained model in the app, in Chromium."""

import re

import pytest
from gestures import open_in_grid, settle
from playwright.sync_api import expect

import attnviz

expect.set_options(timeout=60_000)

SENTENCE = "The animal didn't cross the street because it was too tired."
OPEN_HEAD = ".st-key-open-head"


@pytest.fixture
def minilm_page(open_app):
    page = open_app("/?source=Model")
    expect(page.get_by_role("heading", name="Layer 3 · head 1")).to_be_visible()
    return page


def cell_centre(page, row, column, rows=16, columns=16):
    """Where on the screen a cell of the open head is."""
    box = page.locator(f"{OPEN_HEAD} .draglayer .nsewdrag").bounding_box()
    return box["x"] + box["width"] * (column + 0.5) / columns, box["y"] + box["height"] * (row + 0.5) / rows


def test_a_real_model_is_one_click_away(open_app):
    page = open_app()
    settle(page)
    page.get_by_role("radio", name="Model").click(force=True)
    expect(page.get_by_role("heading", name="Layer 3 · head 1")).to_be_visible()


def test_minilm_says_what_it_refers_to_and_another_head_is_a_click_or_a_key_away(minilm_page):
    labels = minilm_page.locator(f"{OPEN_HEAD} .ytick text")
    expect(labels).to_have_text("[CLS] the animal didn ' t cross the street because it was too tired . [SEP]".split())
    expect(minilm_page.get_by_text("6 layers × 12 heads", exact=False)).to_be_visible()
    expect(minilm_page.get_by_text("Exact through the attention interface", exact=False)).to_be_visible()
    settle(minilm_page)
    minilm_page.mouse.move(*cell_centre(minilm_page, 10, 2))
    hover = minilm_page.locator(f"{OPEN_HEAD} .hoverlayer")
    expect(hover).to_contain_text("query 10: it")
    expect(hover).to_contain_text("key 2: animal")
    expect(hover).to_contain_text("weight 0.6768")

    open_in_grid(minilm_page, 4, 7)
    expect(minilm_page.get_by_role("heading", name="Layer 4 · head 7")).to_be_visible()
    settle(minilm_page)
    expected = attnviz.load_model("minilm", device="cpu").trace(SENTENCE).weights(4, 7)
    for row, column in ((3, 5), (8, 6), (14, 0)):
        minilm_page.mouse.move(*cell_centre(minilm_page, row, column))
        expect(hover).to_contain_text(f"query {row}:")
        expect(hover).to_contain_text(f"key {column}:")
        shown = float(re.search(r"weight ([\d.]+)", hover.text_content())[1])
        assert shown == pytest.approx(float(expected[row, column]), abs=5e-4)

    minilm_page.locator(".st-key-grid .grid").focus()
    for key in ("ArrowUp", "ArrowRight", "Enter"):
        minilm_page.keyboard.press(key)
    expect(minilm_page.get_by_role("heading", name="Layer 3 · head 8")).to_be_visible()
    settle(minilm_page)
    minilm_page.go_back()
    expect(minilm_page.get_by_role("heading", name="Layer 4 · head 7")).to_be_visible()


def test_figures_follow_a_switch_of_theme_while_the_page_still_runs(open_app):
    page = open_app("/?source=Model")
    expect(page.locator(".st-key-strip button").first).to_be_visible()  # before the figures
    page.emulate_media(color_scheme="dark")
    expect(page.locator(f"{OPEN_HEAD} .xtick text").first).to_have_css("fill", "rgb(236, 236, 234)")


def test_a_model_that_is_not_here_asks_before_it_is_fetched(open_app):
    page = open_app("/?source=Model&checkpoint=google-bert/bert-base-uncased")
    expect(page.get_by_text("is not on this machine", exact=False)).to_be_visible()
    expect(page.get_by_role("button", name="Load it")).to_be_visible()
