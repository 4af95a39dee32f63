"""Every page in light and dark, wide and narrow: it fits the window, and axe finds nothing serious on it."""

import os

import pytest
from axe_playwright_python.sync_playwright import Axe
from gestures import settle
from playwright.sync_api import expect
from screens import keep_screenshot

expect.set_options(timeout=60_000)

DOG = "the cat saw the dog because the dog was loud".replace(" ", "+")
LETTERS = "+".join("abcdefghijklmnopqrstuvwxyz"[at % 26] for at in range(2048))
PAGES = {
    "grid": "/?source=Model&order=entropy&tint=distance",
    "map": f"/?text={LETTERS}",
    "compare": "/compare?source=Model&marked=3.1+0.2+5.11",
    "vectors": "/vectors?source=Model",
    "steps": "/steps?module=Self-attention&embedding=The+article%27s+vectors&text=karina+is+to+the+store&weights=identity",
    "table": "/statistics?source=Model",
    "guide": "/guide?screen=2",
}
MORE = {
    "likeness": "/statistics?source=Model&topic=Likeness",
    "lines": "/?source=Model&view=Lines&over=this+layer",
    "heads": f"/?text={DOG}",
    "lines-across": "/?source=Model&view=Lines&horizontal=true",
    "numbers": "/?source=Model&view=Numbers",
    "words": "/?source=Model&words=true&hide_special=true",
    "compare-modules": "/compare",
    "vectors-modules": "/vectors",
    "story": "/steps?source=Model&telling=one+at+a+time&step=5&row=10&column=2",
    "why-scaled": "/steps?lesson=Why+%E2%88%9Ad",
    "why-several": "/steps?lesson=Why+several+heads",
    "averages": f"/statistics?text={DOG}&topic=Averages",
    "rollout": "/statistics?source=Model&topic=Rollout",
    "norms": "/statistics?source=Model&topic=Norms",
}
"""What differs little from `PAGES`; looked at when screenshots are wanted, as it takes its time."""

SCREENSHOTS = bool(os.environ.get("ATTNVIZ_SCREENSHOTS"))
FITS = """() => { const main = document.querySelector('[data-testid=stMain]')
    return main.scrollWidth <= main.clientWidth }"""
WIDTHS = (1280, 800, 390)
NARROW = (800, 390)
CHECKED = 800
"""The width at which a page is looked through for what keeps people out."""


@pytest.mark.parametrize("name", PAGES | MORE if SCREENSHOTS else PAGES)
def test_a_page_fits_every_window_and_keeps_nobody_out(open_app, name):
    page = open_app((PAGES | MORE)[name])
    expect(
        page.locator(".st-key-grid canvas.all, .js-plotly-plot, .stDataFrame").filter(visible=True).first
    ).to_be_visible()
    settle(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(1500)  # the page asks Python for its colours, which takes a run
        settle(page)
        for width in WIDTHS if SCREENSHOTS else NARROW if scheme == "light" else (CHECKED,):
            page.set_viewport_size({"width": width, "height": 860})
            page.wait_for_timeout(400)
            settle(page)
            page.wait_for_function(FITS, timeout=30_000)
            if width == CHECKED:
                assert _barriers(page) == [], scheme
            if SCREENSHOTS:
                keep_screenshot(page, f"{name}-{scheme}-{width}")


def _barriers(page):
    found = Axe().run(page).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
