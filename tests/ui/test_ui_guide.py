"""The Guide: every screen has a live picture and a way to try it."""

import pytest

from attnviz.analysis.patterns import PATTERNS
from attnviz.statistics import DEFINITIONS
from attnviz.ui.pages.guide import SCREENS, TERMS
from attnviz.ui.state import FIELDS, checked


@pytest.mark.parametrize("at", range(len(SCREENS)))
def test_a_screen_has_a_live_picture(open_page, at):
    page = open_page("guide", screen=str(at + 1))
    assert page.warnings == page.hints == []
    assert any(key.startswith("guide") for key in page.figures())
    assert any(SCREENS[at].title in heading for heading in page.headings)


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.title)
def test_try_it_leads_to_a_state_that_is_allowed(screen):
    for key, value in screen.values.items():
        assert key in FIELDS
        assert checked(key, value) == value


def test_the_screens_are_turned_over(open_page):
    page = open_page("guide")
    page.click("Next")
    assert any(SCREENS[1].title in heading for heading in page.headings)
    page.click("Back")
    assert any(SCREENS[0].title in heading for heading in page.headings)


def test_every_term_and_number_is_defined(open_page):
    page = open_page("guide")
    said = " ".join(text.value for text in page.app.markdown).replace("\\", "")
    for word in TERMS:
        assert f"**{word}**" in said
    for known in [*DEFINITIONS.values(), *PATTERNS.values()]:
        assert f"**{known.title}**" in said
