"""Comparing heads as a new user would: mark, find the most alike, read the difference, send the address to somebody."""

import pytest
from gestures import choose, open_in_grid, settle
from playwright.sync_api import expect

import attnviz
from attnviz.analysis.head_distances import nearest_heads

expect.set_options(timeout=60_000)

BIG = "The trophy does not fit in the suitcase because it is too big."


@pytest.fixture(scope="module")
def model():
    return attnviz.load_model("minilm", device="cpu")


def metric(page, name):
    return page.locator("[data-testid=stMetric]", has_text=name).locator("[data-testid=stMetricValue]")


def test_a_new_user_compares_heads_and_sends_the_address(open_app, browser, model):
    page = open_app(f"/?source=Model&sentence={BIG.replace(' ', '+')}")
    settle(page)
    for layer, head, marked in ((3, 1, "3.1"), (0, 2, "3.1 0.2"), (5, 11, "3.1 0.2 5.11")):
        open_in_grid(page, layer, head, modifiers=["Shift"])
        expect(page.get_by_role("textbox", name="Marked heads")).to_have_value(marked)
    page.get_by_role("link", name="Compare").click()
    beside = page.locator(".st-key-marked-heads")
    for title in ("layer 3, head 1", "layer 0, head 2", "layer 5, head 11"):
        expect(beside.get_by_text(title)).to_be_visible()

    choose(page, "Layer (A)", "2")
    choose(page, "Head (A)", "5")
    trace = model.trace(BIG)
    layer, head, divergence = nearest_heads(trace, 2, 5).iloc[0]
    page.get_by_role("button", name=f"layer {layer:.0f} head {head:.0f} · {divergence:.4f}").click()
    expect(page.get_by_text(f"B: layer {layer:.0f}, head {head:.0f}")).to_be_visible()
    expect(metric(page, "mean JS divergence")).to_have_text(f"{divergence:.4f} nats")

    page.get_by_role("button", name="The trophy").click()
    expect(page.get_by_text("1 differs (big → small)")).to_be_visible()
    expect(page.get_by_role("textbox", name="Text for the model (B)")).to_have_value(BIG.replace("big", "small"))
    settle(page)
    said = metric(page, "mean JS divergence").inner_text()
    with browser.new_context() as elsewhere:
        copy = elsewhere.new_page()
        copy.goto(page.url)
        expect(metric(copy, "mean JS divergence")).to_have_text(said)
        expect(copy.get_by_text("1 differs (big → small)")).to_be_visible()
        expect(copy.locator(".st-key-marked-heads").get_by_text("layer 5, head 11")).to_be_visible()


def test_the_pointer_over_one_map_shows_the_cell_in_all_three_with_its_three_values(open_app):
    page = open_app("/compare?text=one+two+three+four&heads=2")
    chart = page.locator(".st-key-comparison .js-plotly-plot")
    expect(chart.locator(".hm").nth(2)).to_be_visible()
    settle(page)
    page.wait_for_function("document.querySelector('.st-key-comparison .js-plotly-plot').attnvizPointer !== undefined")
    chart.scroll_into_view_if_needed()
    box = chart.evaluate(
        """chart => { const { xaxis, yaxis } = chart._fullLayout._plots.x2y2 ?? chart._fullLayout._plots.x2y
            const at = chart.getBoundingClientRect()
            return [at.x + xaxis._offset + xaxis.l2p(3), at.y + yaxis._offset + yaxis.l2p(1)] }"""
    )
    page.mouse.move(*box)
    values = chart.evaluate("chart => chart._fullData.map(map => map.z[1][3])")
    hover = chart.locator(".hoverlayer")
    for value in values[:3]:
        expect(hover).to_contain_text(f"{abs(value):.6f}")
    for at in range(3):
        frame = chart.locator(f".attnviz-cell-{at}")
        expect(frame).to_be_visible()
        assert frame.bounding_box()["width"] > 10
    page.mouse.move(5, 5)
    expect(chart.locator(".attnviz-cell-0")).to_be_hidden()


def test_back_undoes_a_choice_of_b(open_app):
    page = open_app("/compare?heads=4")
    settle(page)
    choose(page, "Head (B)", "3")
    expect(page.get_by_text("B: layer 0, head 3")).to_be_visible()
    settle(page)
    page.go_back()
    expect(page.get_by_text("B: layer 0, head 1")).to_be_visible()


def test_a_point_of_the_scatter_opens_its_head(open_app):
    page = open_app("/statistics?text=the+cat+saw+the+dog&heads=4")
    chart = page.locator(".st-key-scatter .js-plotly-plot")
    expect(chart.locator(".point").first).to_be_visible()
    settle(page)
    head = chart.evaluate("chart => chart._fullData[0].customdata[1][1]")
    box = chart.locator(".point").nth(1).bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.get_by_role("combobox", name="Head")).to_have_value(str(head))
