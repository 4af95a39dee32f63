"""What a person does in the app, done in Chromium."""

import re

from gestures import choose, open_in_grid, settle
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


def test_the_first_page_shows_heatmaps_that_follow_typing_and_say_numbers_on_hover(open_app):
    page = open_app()
    expect(page.locator(".js-plotly-plot .hm")).to_have_count(5)  # the open head, and all four side by side
    expect_labels(page, "y", "Karina is going to the store".split())
    opened = page.locator(OPEN_HEAD)
    expect(opened.get_by_text("query: attends from")).to_be_visible()
    expect(opened.get_by_text("key: attended to")).to_be_visible()

    page.get_by_role("textbox", name="Text", exact=True).click()
    page.keyboard.press("Control+A")
    page.keyboard.type(DOG, delay=15)
    expect_labels(page, "y", DOG.split())
    expect_labels(page, "x", DOG.split())
    expect(page.get_by_text("“dog” stands", exact=False)).to_have_count(0)
    expect(page.get_by_text("“the” stands at positions 0 and 3", exact=False)).to_be_visible()

    settle(page)
    box = page.locator(f"{OPEN_HEAD} .draglayer .nsewdrag").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.45, box["y"] + box["height"] * 0.75)
    hover = page.locator(f"{OPEN_HEAD} .hoverlayer")
    expect(hover).to_contain_text("query 7: dog")
    expect(hover).to_contain_text("key 4: dog")
    assert re.search(r"weight 0\.\d{6}", hover.text_content())


def test_other_vectors_modules_and_devices_are_a_choice_away(open_app):
    page = open_app()
    type_into(page, "Text", "Tokenizers split unbelievable words")
    choose(page, "Vectors", "Pretrained: input embeddings")
    pieces = ["[CLS]", "token", "##izer", "##s", "split", "unbelievable", "words", "[SEP]"]
    expect_labels(page, "y", pieces)
    choose(page, "Device", "cpu")
    expect(page).to_have_url(re.compile("device=cpu"))
    expect_labels(page, "y", pieces)

    choose(page, "Vectors", "Random vectors")
    choose(page, "Module", "Multi-head cross-attention")
    type_into(page, "Text", "le chat noir")
    type_into(page, "Text attended to", "the black cat sleeps here")
    expect_labels(page, "y", ["le", "chat", "noir"])
    expect_labels(page, "x", ["the", "black", "cat", "sleeps", "here"])
    keep_screenshot(page, "heads-cross")


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


def test_another_head_opens_by_name_and_by_a_click(open_app):
    page = open_app()
    expect(page.get_by_role("heading", name="Multi-head self-attention · head 0")).to_be_visible()
    choose(page, "Head", "2")
    expect(page.get_by_role("heading", name="Multi-head self-attention · head 2")).to_be_visible()
    expect(page).to_have_url(re.compile("head=2"))
    settle(page)
    open_in_grid(page, 0, 3)
    expect(page.get_by_role("heading", name="Multi-head self-attention · head 3")).to_be_visible()
    expect(page).to_have_url(re.compile("head=3"))


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


def test_what_cannot_be_shown_is_explained_and_kept(open_app):
    page = open_app()
    for text in ("", "   "):
        type_into(page, "Text", text)
        expect(page.get_by_text("Type a sentence", exact=False)).to_be_visible()
        expect(page.locator(".stException")).to_have_count(0)
        type_into(page, "Text", "one two")
        expect(page.get_by_text("Type a sentence", exact=False)).to_have_count(0)
    field = page.get_by_role("spinbutton", name="Heads")
    field.fill("5")
    field.press("Enter")
    expect(page.get_by_text("divides embed_dim = 16, got num_heads = 5", exact=False)).to_be_visible()
    expect(field).to_have_value("5")
