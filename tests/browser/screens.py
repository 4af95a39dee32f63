"""Screenshots of whole pages, kept in an ignored folder for people to look at."""

from pathlib import Path

SCREENSHOTS = Path(__file__).parent / "screenshots"


def keep_screenshot(page, name):
    """Write the whole page into the ignored folder of screenshots."""
    SCREENSHOTS.mkdir(exist_ok=True)
    size = page.viewport_size
    height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": size["width"], "height": max(size["height"], height + 40)})
    page.wait_for_timeout(500)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")
    page.set_viewport_size(size)
