"""What holds for every test."""

import os

import torch
from xdist.scheduler import LoadScopeScheduling

if "PYTEST_XDIST_WORKER" in os.environ:  # several processes share the processors
    torch.set_num_threads(1)


class OneBrowser(LoadScopeScheduling):
    """All tests in the browser on one worker, from the beginning: two browsers at once slow each other to a crawl."""

    def _split_scope(self, nodeid):
        return "browser" if nodeid.startswith("tests/browser/") else nodeid


def pytest_xdist_make_scheduler(config, log):
    return OneBrowser(config, log)
