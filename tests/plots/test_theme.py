"""Colours by their lightness (CIE L*), and titles that obey no markup."""

import numpy as np
import plotly.graph_objects as go
import pytest

from attnviz.plots.theme import DARK, LIGHT, diverging_scale, sequential_scale, style


def rgb(colour):
    return np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])


def lightness(colour):
    """CIE L* of an sRGB colour, 0 to 100, by the formulas of IEC 61966-2-1 and CIE 15."""
    part = np.asarray(rgb(colour) if isinstance(colour, str) else colour) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ [0.2126, 0.7152, 0.0722])
    return 116 * np.cbrt(luminance) - 16 if luminance > 0.008856 else 903.3 * luminance


def colour_at(scale, value):
    """What Plotly draws: between two stops, in RGB."""
    places = [place for place, _ in scale]
    return np.array([np.interp(value, places, channel) for channel in zip(*(rgb(c) for _, c in scale), strict=True)])


THEMES = pytest.mark.parametrize(("theme", "away"), [(LIGHT, -1), (DARK, 1)], ids=["light", "dark"])


@THEMES
def test_ink_starts_at_the_page_and_leaves_it_evenly(theme, away):
    assert theme.sequential[0] == theme.page
    steps = away * np.diff([lightness(colour) for colour in theme.sequential])
    assert (steps > 0).all()
    assert np.abs(steps / steps.mean() - 1).max() < 0.06
    assert steps.sum() > 65  # the strongest ink is far from the page


@THEMES
def test_a_difference_of_nothing_is_the_page_and_both_sides_leave_it(theme, away):
    scale = diverging_scale(theme)
    assert dict(scale)[0.5] == theme.page
    assert [place for place, _ in scale] == pytest.approx(np.linspace(0, 1, len(scale)))
    levels = np.array([lightness(colour) for _, colour in scale])
    middle = len(scale) // 2
    assert (away * np.diff(levels[middle:]) > 0).all()
    assert (away * np.diff(levels[: middle + 1]) < 0).all()
    for side in (levels[middle:], levels[: middle + 1]):
        steps = np.abs(np.diff(side))
        assert np.abs(steps / steps.mean() - 1).max() < 0.06


@THEMES
def test_square_root_ink_has_the_colour_of_the_square_root(theme, away):
    linear, root = sequential_scale(theme, "linear"), sequential_scale(theme, "sqrt")
    assert [colour for _, colour in linear] == [colour for _, colour in root]
    for place, colour in linear:
        np.testing.assert_allclose(colour_at(root, place**2), rgb(colour))
    step = 100 / (len(linear) - 1)
    for value in np.linspace(0, 1, 101):  # between stops, within a part of a step
        gap = lightness(colour_at(root, value)) - lightness(colour_at(linear, np.sqrt(value)))
        assert abs(gap) < step / 4


@THEMES
def test_words_can_be_read_on_the_page(theme, away):
    for colour, least in ((theme.text, 75), (theme.muted, 50), (theme.accent, 45)):
        assert abs(lightness(colour) - lightness(theme.page)) > least


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("head 0", "head 0"),
        ("“<b>x</b>” & $y$", "“&lt;b&gt;x&lt;/b&gt;” &amp; &#36;y&#36;"),
        ("#000032", "&#35;000032"),
    ],
)
def test_a_title_is_text_and_leaves_the_rest_its_room(title, shown):
    figure = style(go.Figure(), LIGHT, title=title)
    assert figure.layout.title.text == shown
    assert figure.layout.title.automargin
    assert figure.layout.title.yref == "container"


def test_no_title_takes_no_room_and_the_page_shows_through():
    figure = style(go.Figure(go.Heatmap(z=[[1]])), LIGHT)
    assert figure.layout.title.text is None
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
