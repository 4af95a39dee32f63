"""What holds for every test."""

import os

import torch

if "PYTEST_XDIST_WORKER" in os.environ:  # several processes share the processors
    torch.set_num_threads(1)
