"""Where the arithmetic runs: which devices this machine has, and which one a name means."""

import torch

from attnviz.errors import OptionError


def available_devices() -> tuple[str, ...]:
    """The names `resolve_device` takes on this machine.

    Returns:
        `("auto", "cpu")`, then `"cuda:0"`, `"cuda:1"`, … for each GPU of CUDA (or ROCm), then `"mps"` on a Mac
        that has it.
    """
    gpus = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count())) if torch.cuda.is_available() else ()
    mps = ("mps",) if torch.backends.mps.is_available() else ()
    return ("auto", "cpu", *gpus, *mps)


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """The device a name means on this machine.

    Args:
        name: `"auto"` takes the first GPU, else `"mps"`, else the CPU; `"cuda"` means the current GPU; otherwise
            one of `available_devices()`.

    Returns:
        The device; a GPU always comes with its index.

    Raises:
        OptionError: The machine has no such device; the message lists those it has.
    """
    present = available_devices()
    wanted = str(name).strip().lower()
    if wanted == "auto":
        return torch.device(_fastest(present))
    if wanted == "cuda" and "cuda:0" in present:
        wanted = f"cuda:{torch.cuda.current_device()}"
    if wanted not in present:
        raise OptionError(
            f"Expected a device that this machine has ({', '.join(present)}), got {str(name)!r}; "
            "choose one of these, or 'auto' for the fastest."
        )
    return torch.device(wanted)


def _fastest(present: tuple[str, ...]) -> str:
    return next(name for name in ("cuda:0", "mps", "cpu") if name in present)
