"""Which device a name means, on this machine and on machines made up here."""

import pytest
import torch

from attnviz.devices import available_devices, resolve_device
from attnviz.errors import OptionError


@pytest.fixture
def machine(monkeypatch):
    """A machine with as many GPUs as asked for, with or without mps."""

    def set_up(gpus=0, mps=False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: gpus - 1)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return set_up


@pytest.mark.parametrize(
    ("gpus", "mps", "names", "fastest"),
    [
        (0, False, ("auto", "cpu"), "cpu"),
        (0, True, ("auto", "cpu", "mps"), "mps"),
        (2, False, ("auto", "cpu", "cuda:0", "cuda:1"), "cuda:0"),
        (1, True, ("auto", "cpu", "cuda:0", "mps"), "cuda:0"),
    ],
)
def test_a_machine_lists_what_it_has_and_auto_takes_the_fastest(machine, gpus, mps, names, fastest):
    machine(gpus, mps)
    assert available_devices() == names
    assert resolve_device() == torch.device(fastest)
    assert [str(resolve_device(name)) for name in names[1:]] == list(names[1:])


def test_cuda_alone_is_the_current_gpu(machine):
    machine(gpus=3)
    assert resolve_device("cuda") == torch.device("cuda:2")


def test_a_torch_device_and_capitals_are_fine():
    assert resolve_device(torch.device("cpu")) == resolve_device(" CPU ") == torch.device("cpu")


@pytest.mark.parametrize("absent", ["cuda", "cuda:2", "mps", "tpu", ""])
def test_an_absent_device_is_named_with_those_present(machine, absent):
    machine(gpus=0)
    with pytest.raises(OptionError) as caught:
        resolve_device(absent)
    assert "(auto, cpu)" in str(caught.value)
    assert repr(absent) in str(caught.value)
