"""Threads for work made of many short operations."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")
_STARTING = threading.Lock()


def each(work: Callable[[Part], Result], parts: Sequence[Part], device: torch.device) -> list[Result]:
    """Return what the work makes of each part, several parts at a time where they are on a CPU."""
    if len(parts) == 1 or device.type != "cpu":
        return [work(part) for part in parts]
    return list(workers_of_one_core().map(work, parts))


def workers_of_one_core() -> ThreadPoolExecutor:
    """Return threads that compute with one core each, the same ones for everybody.

    A block's operations are too short to be shared among cores: the others would spin between them, and a pass take
    twice the processor's time.
    """
    with _STARTING:
        return _workers()


@functools.cache
def _workers() -> ThreadPoolExecutor:
    count = torch.get_num_threads()
    together = threading.Barrier(count + 1)

    def start() -> None:
        torch.set_num_threads(1)
        together.wait()

    workers = ThreadPoolExecutor(count, thread_name_prefix="attnviz-worker")
    for _ in range(count):
        workers.submit(start)
    together.wait()
    torch.set_num_threads(count)  # what a worker sets for itself is also what threads to come start with
    return workers
