"""The garbage collector looks through what is new, and in the end through everything."""

import gc
import weakref

import pytest

from attnviz.ui.garbage import MOST_OBJECTS, spare_collector


class Ring:
    """Something that only the collector frees."""

    def __init__(self):
        self.itself = self


@pytest.fixture(autouse=True)
def _nothing_set_aside():
    gc.unfreeze()
    spare_collector()
    yield
    gc.unfreeze()


def test_what_is_there_to_stay_is_set_aside():
    assert gc.get_freeze_count() > 0
    stays = [[] for _ in range(MOST_OBJECTS + 1)]
    before = gc.get_freeze_count()
    spare_collector()
    assert gc.get_freeze_count() > before + MOST_OBJECTS
    assert len(gc.get_objects()) < MOST_OBJECTS
    assert len(stays) > MOST_OBJECTS


def test_a_few_new_objects_are_left_to_the_collector():
    before = gc.get_freeze_count()
    spare_collector()
    assert gc.get_freeze_count() == pytest.approx(before, abs=100)


def test_what_became_garbage_after_it_was_set_aside_goes_when_much_has_come():
    ring = Ring()
    gone = weakref.ref(ring)
    gc.freeze()
    del ring
    gc.collect()
    assert gone() is not None
    more = [[] for _ in range(MOST_OBJECTS + 1)]
    spare_collector()
    assert gone() is None
    del more
