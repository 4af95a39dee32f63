"""Texts that broke other tools, on the pages that compare, follow and count."""

import pytest

TEXTS = {
    "markup": '<b>x</b> <a href="http://x">y</a> </script>',
    "formula": "It costs $5, or $6 *_ :smile: `a`",
    "repeated": "the the the the",
    "joined": "👍🏽 👨‍👩‍👧 猫 هذا كتاب",
    "white space": "a\tb\n  c",
    "one word": "alone",
    "nothing": "   ",
    "a page": "The quick brown fox jumps over the lazy dog. " * 30,
}
PAGES = {
    "compare": ("compare", {}),
    "vectors": ("vectors", {}),
    "steps": ("steps", {}),
    **{topic: ("statistics", {"topic": topic}) for topic in ("Table", "Likeness", "Averages", "Rollout", "Norms")},
}


@pytest.mark.parametrize("source", ["Modules", "Model"])
@pytest.mark.parametrize("text", TEXTS)
def test_every_page_shows_it_or_says_why_not(open_page, text, source):
    for path, address in PAGES.values():
        field = "text" if source == "Modules" else "sentence"
        page = open_page(path, source=source, **{field: TEXTS[text]}, **address)
        said = [*page.warnings, *page.hints]  # every character in them is escaped
        elsewhere = any("are drawn on the page Heads" in caption for caption in page.captions)
        assert page.figures() or said or elsewhere or (path == "statistics" and page.app.dataframe)
        if text == "nothing" and source == "Modules":
            assert any("Type a sentence" in one for one in said)
            assert not page.figures()
        if text in ("markup", "repeated", "one word"):
            assert said == []
            assert page.figures()
