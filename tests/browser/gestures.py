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
