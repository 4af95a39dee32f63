"""What a person does on a page, done so that it holds on a slow machine too."""

from playwright.sync_api import TimeoutError as Late
from playwright.sync_api import expect

IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"


def settle(page):
    """Wait until the page's Python has run to its end."""
    expect(page.locator(IDLE)).to_be_visible()


def choose(page, label, option):
    """Choose an option of a select box by what a person reads; a run that ends meanwhile closes the list again."""
    wanted = page.get_by_role("option", name=option, exact=True)
    for _ in range(10):
        settle(page)
        page.get_by_role("combobox", name=label).click()
        try:
            return wanted.click(timeout=4_000)
        except Late:
            page.keyboard.press("Escape")
    raise AssertionError(f"the list of {label!r} never showed {option!r}")


def open_in_grid(page, layer, head, *, modifiers=()):
    """Click a head in the grid of all heads."""
    x, y = centre_in_grid(page, layer, head)
    for key in modifiers:
        page.keyboard.down(key)
    page.mouse.click(x, y)
    for key in modifiers:
        page.keyboard.up(key)


def centre_in_grid(page, layer, head):
    """Where on the screen a head's picture is."""
    canvas = page.locator(".st-key-grid canvas.all")
    expect(canvas).to_be_visible()
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = page.locator(".st-key-grid .grid").evaluate(
        """(grid, [layer, head]) => {
            const { tiles, tile } = grid.attnviz.layout
            const one = tiles.find((each) => each.layer === layer && each.head === head)
            return [one.x + tile / 2, one.y + tile / 2]
        }""",
        [layer, head],
    )
    return box["x"] + x, box["y"] + y
