"""What is sent to the browser, and what comes back from it."""

import numpy as np
import pytest
import torch

from attnviz.attention import MultiHeadSelfAttention, causal_mask
from attnviz.experiment import Experiment, run_experiment
from attnviz.trace import AttentionTrace
from attnviz.ui import sending
from attnviz.ui.view import View

DOG = "the cat saw the dog because the dog was loud"


def view_of(trace: AttentionTrace, layer: int = 0, head: int = 0) -> View:
    return View(trace, trace, trace.role(), layer, head, "", "a name", "a name")


def long_trace(tokens: int) -> AttentionTrace:
    torch.manual_seed(3)
    return MultiHeadSelfAttention(10, 2).trace(torch.randn(tokens, 10), mask=causal_mask(tokens))


@pytest.fixture
def state_of(monkeypatch):
    """Put values into the state without a page."""

    def put(**values):
        defaults = {key: field.default for key, field in sending.state.FIELDS.items()}
        monkeypatch.setattr(sending.state, "get", lambda key: (defaults | values)[key])

    put()
    return put


def test_of_a_short_text_every_head_is_sent(state_of):
    trace = run_experiment(Experiment(text=DOG, heads=4, causal=True)).trace
    shared = sending.what_is_shared(view_of(trace, head=2))
    assert list(shared.maps) == [(0, head) for head in range(4)]
    for head in range(4):
        sent, allowed = shared.maps[0, head].numpy(), trace.allowed(0).numpy()
        assert np.array_equal(np.isnan(sent), ~allowed)
        assert np.array_equal(np.nan_to_num(sent), trace.weights(0, head).numpy())
    assert (shared.open, list(shared.shown), shared.lines, shared.same) == ((0, 2), [(0, 2)], {}, True)


@pytest.mark.parametrize(("side", "at"), [("query", 600), ("key", 3)])
def test_of_a_long_text_only_the_chosen_token_s_line_is_sent(state_of, side, at):
    state_of(token=at, side=side)
    trace = long_trace(787)
    shared = sending.what_is_shared(view_of(trace, head=1))
    assert shared.maps == {}
    assert list(shared.lines) == [f"0.1.{side}.{at}"]
    weights = trace.weights(0, 1).masked_fill(~trace.allowed(0), torch.nan)
    expected = weights[at] if side == "query" else weights[:, at]
    assert shared.lines[f"0.1.{side}.{at}"].numpy() == pytest.approx(expected.numpy(), abs=1e-6, nan_ok=True)


def test_a_mean_line_is_the_mean_over_the_heads(state_of):
    trace = long_trace(787)
    line = sending.mean_line(view_of(trace), [(0, 0), (0, 1)], "query", 605)
    expected = (trace.weights(0, 0)[605] + trace.weights(0, 1)[605]) / 2
    assert torch.allclose(line.nan_to_num(), expected, atol=1e-6)
    assert torch.equal(line.isnan(), ~trace.allowed(0)[605])


@pytest.mark.parametrize(
    ("over", "marked", "shown"),
    [
        ("this head", "0.1", [(0, 2)]),
        ("marked heads", "0.3 0.1 0.9 7.0 x", [(0, 3), (0, 1)]),
        ("marked heads", "", [(0, 2)]),
        ("this layer", "", [(0, head) for head in range(4)]),
        ("every head", "", [(0, head) for head in range(4)]),
    ],
)
def test_which_heads_are_shown(state_of, over, marked, shown):
    state_of(over=over, marked=marked)
    trace = run_experiment(Experiment(text=DOG, heads=4)).trace
    assert sending.shown_heads(view_of(trace, head=2)) == shown


def test_more_cells_than_can_be_averaged_leave_the_open_head(state_of, monkeypatch):
    state_of(over="every head")
    monkeypatch.setattr(sending, "MOST_IN_MEAN", 399)
    trace = run_experiment(Experiment(text=DOG, heads=4)).trace
    view = view_of(trace, head=2)
    assert sending.shown_heads(view) == [(0, 2)]
    assert sending.too_many_for_a_mean(view).startswith("4 heads of this length are too many")
    monkeypatch.setattr(sending, "MOST_IN_MEAN", 400)
    assert sending.shown_heads(view) == [(0, head) for head in range(4)]
    assert sending.too_many_for_a_mean(view) == ""


def test_an_address_restores_what_was_chosen_in_the_views(open_page):
    options = {"order": "entropy", "tint": "distance", "top": "5"}
    chosen = {"head": "3", "token": "4", "side": "key", "marked": "0.1 0.2", "over": "marked heads"}
    page = open_page(text=DOG, **chosen, **options)
    header = page.sent("hidden-selection")[0]
    assert header["open"] == {"layer": 0, "head": 3}
    assert header["pinned"] == {"side": "key", "at": 4}
    assert [at["head"] for at in header["marked"]] == [at["head"] for at in header["shown"]] == [1, 2]
    assert page.sent("grid")[0]["options"] == {"order": "entropy", "tint": "distance", "top": 5}
    assert page.sent("strip")[0]["over"] == "marked heads"


def test_an_option_that_is_not_there_is_the_default(open_page):
    page = open_page(order="nonsense", top="99")
    assert page.sent("grid")[0]["options"] == {"order": "layer", "tint": "none", "top": 0}


def test_a_token_beyond_the_text_is_not_chosen(open_page):
    page = open_page(text="one two", token="7")
    assert page.sent("hidden-selection")[0]["pinned"] is None
    assert page.app.get_by_key("token").value == 7  # and stays as it was


def test_what_is_sent_does_not_change_when_nothing_does(open_page):
    page = open_page(text=DOG)
    before = page.sent("hidden-selection")[0]["version"]
    page.run()
    assert page.sent("hidden-selection")[0]["version"] == before
    page.change(seed=5.0)
    assert page.sent("hidden-selection")[0]["version"] != before
    assert page.sent("hidden-selection")[0]["trace"] != "a name"
