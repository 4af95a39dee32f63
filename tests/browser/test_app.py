"""What a person does in the app, done in Chromium."""

import re

import pytest
from gestures import choose, open_in_grid
from playwright.sync_api import expect
from screens import keep_screenshot

expect.set_options(timeout=60_000)

DOG = "the cat saw the dog because the dog was loud"
OPEN_HEAD = ".st-key-open-head"


def labels(page, axis, where=OPEN_HEAD):
    """The token labels along an axis of the open head."""
    return page.locator(f"{where} .{axis}tick text").all_text_contents()


def expect_labels(page, axis, expected, where=OPEN_HEAD):
    expect(page.locator(f"{where} .{axis}tick text")).to_have_text(expected)


def type_into(page, label, text):
    page.get_by_role("textbox", name=label, exact=True).fill(text)


def test_first_page_shows_heatmaps_before_anything_is_touched(open_app):
    page = open_app()
    expect(page.locator(".js-plotly-plot .hm")).to_have_count(5)  # the open head, and all four side by side
    expect_labels(page, "y", "Karina is going to the store".split())
    opened = page.locator(OPEN_HEAD)
    expect(opened.get_by_text("query: attends from")).to_be_visible()
    expect(opened.get_by_text("key: attended to")).to_be_visible()


def test_typing_a_sentence_updates_the_picture_without_enter(open_app):
    page = open_app()
    expect_labels(page, "y", "Karina is going to the store".split())
    page.get_by_role("textbox", name="Text", exact=True).click()
    page.keyboard.press("Control+A")
    page.keyboard.type(DOG, delay=15)
    expect_labels(page, "y", DOG.split())
    expect_labels(page, "x", DOG.split())
    expect(page.get_by_text("“dog” stands", exact=False)).to_have_count(0)
    expect(page.get_by_text("“the” stands at positions 0 and 3", exact=False)).to_be_visible()


def test_hover_says_both_tokens_their_positions_and_the_exact_value(open_app):
    page = open_app(f"/?text={DOG.replace(' ', '+')}")
    expect_labels(page, "y", DOG.split())
    box = page.locator(f"{OPEN_HEAD} .draglayer .nsewdrag").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.45, box["y"] + box["height"] * 0.75)
    hover = page.locator(f"{OPEN_HEAD} .hoverlayer")
    expect(hover).to_contain_text("query 7: dog")
    expect(hover).to_contain_text("key 4: dog")
    assert re.search(r"weight 0\.\d{6}", hover.text_content())


def test_pretrained_embeddings_show_real_word_pieces(open_app):
    page = open_app()
    type_into(page, "Text", "Tokenizers split unbelievable words")
    choose(page, "Vectors", "Pretrained: input embeddings")
    expect_labels(page, "y", ["[CLS]", "token", "##izer", "##s", "split", "unbelievable", "words", "[SEP]"])


def test_cross_attention_of_two_lengths_is_not_square(open_app):
    page = open_app()
    choose(page, "Module", "Multi-head cross-attention")
    type_into(page, "Text", "le chat noir")
    type_into(page, "Text attended to", "the black cat sleeps here")
    expect_labels(page, "y", ["le", "chat", "noir"])
    expect_labels(page, "x", ["the", "black", "cat", "sleeps", "here"])
    keep_screenshot(page, "heads-cross")


def test_switching_the_device_keeps_the_picture(open_app):
    page = open_app()
    expect_labels(page, "y", "Karina is going to the store".split())
    choose(page, "Device", "cpu")
    expect(page).to_have_url(re.compile("device=cpu"))
    expect_labels(page, "y", "Karina is going to the store".split())


def test_the_articles_numbers_are_one_click_away(open_app):
    page = open_app()
    page.get_by_role("button", name="The article's numbers").click()
    expect(page.get_by_text("second row sums to 1.09", exact=False)).to_be_visible()
    weights = """0.2384 0.1175 0.2384 0.2384 0.1674 0.1097 0.2226 0.2226 0.2226 0.2226
        0.1337 0.1337 0.2711 0.2711 0.1904 0.1337 0.1337 0.2711 0.2711 0.1904
        0.1223 0.1741 0.2479 0.2479 0.2078""".split()
    expect(page.locator(f"{OPEN_HEAD} .heatmap-label")).to_have_text(weights)
    page.get_by_role("link", name="Vectors").click()
    outputs = "0.7988 0.7616 0.6662 0.8903 0.7711 0.8663 0.7711 0.8663 0.7220 0.8777".split()
    expect(page.locator(".st-key-outputs .heatmap-label")).to_have_text(outputs)


@pytest.mark.parametrize("how", ["grid", "box"])
def test_another_head_opens(open_app, how):
    page = open_app()
    expect(page.get_by_role("heading", name="Multi-head self-attention · head 0")).to_be_visible()
    open_in_grid(page, 0, 2) if how == "grid" else choose(page, "Head", "2")
    expect(page.get_by_role("heading", name="Multi-head self-attention · head 2")).to_be_visible()
    expect(page).to_have_url(re.compile("head=2"))


def test_reload_and_address_restore_the_view(open_app):
    page = open_app()
    type_into(page, "Text", "<b>x</b> costs $5")
    choose(page, "Module", "Self-attention")
    expect_labels(page, "y", ["<", "b", ">", "x", "<", "/", "b", ">", "costs", "$", "5"])
    page.get_by_role("link", name="Vectors").click()
    expect(page.get_by_role("heading", name="Input vectors")).to_be_visible()
    page.reload()
    expect(page.get_by_role("textbox", name="Text", exact=True)).to_have_value("<b>x</b> costs $5")
    expect(page.get_by_role("heading", name="Input vectors")).to_be_visible()
    again = open_app(page.url.split("://", 1)[1].split("/", 1)[1].join(["/", ""]))
    expect(again.get_by_role("textbox", name="Text", exact=True)).to_have_value("<b>x</b> costs $5")


def test_back_and_forward_lose_nothing(open_app):
    page = open_app()
    type_into(page, "Text", "one two three")
    expect_labels(page, "y", ["one", "two", "three"])
    page.get_by_role("link", name="Vectors").click()
    expect(page.get_by_role("heading", name="Input vectors")).to_be_visible()
    page.go_back()
    expect_labels(page, "y", ["one", "two", "three"])
    expect(page.get_by_role("textbox", name="Text", exact=True)).to_have_value("one two three")
    page.go_forward()
    expect(page.get_by_role("heading", name="Input vectors")).to_be_visible()
    expect(page.get_by_role("textbox", name="Text", exact=True)).to_have_value("one two three")


@pytest.mark.parametrize("text", ["", "   "])
def test_no_text_is_asked_for_in_a_sentence(open_app, text):
    page = open_app()
    type_into(page, "Text", text)
    expect(page.get_by_text("Type a sentence", exact=False)).to_be_visible()
    expect(page.locator(".stException")).to_have_count(0)


def test_heads_that_do_not_divide_are_explained_and_kept(open_app):
    page = open_app()
    field = page.get_by_role("spinbutton", name="Heads")
    field.fill("5")
    field.press("Enter")
    expect(page.get_by_text("divides embed_dim = 16, got num_heads = 5", exact=False)).to_be_visible()
    expect(field).to_have_value("5")
