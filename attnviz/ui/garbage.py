"""What keeps Python's garbage collector from looking through torch and the models in every run."""

from __future__ import annotations

import gc

MOST_OBJECTS = 50_000
"""So many objects are looked through in about 50 ms."""


def spare_collector() -> None:
    """At the end of a run, set aside what is there to stay: imported modules, loaded models.

    Streamlit collects garbage after every run, and Python itself now and then. With torch and a model in memory that
    is half a million objects, and 0.25 to 0.5 s in which nothing else goes on. What is set aside is looked through
    again only when as many objects have come, so that garbage in it does not stay for good.
    """
    if len(gc.get_objects()) > MOST_OBJECTS:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
