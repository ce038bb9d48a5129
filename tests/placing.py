"""The tests on another device, ``pytest --device cuda``: what a test makes from numbers lands there, and the library gets no help.

Tensors that a test makes, numbers that it hands to the library in lists, laws without parameters, and generators are put on the
device; what a test reads as NumPy comes back. Nothing that the library itself makes is touched, so that a tensor which it makes in
the wrong place still fails.
"""

import functools
import sys
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

import largeprompt
from largeprompt import validation
from largeprompt.measures.placed import PlacedMeasure

HERE = Path(__file__).parent
ASKING = (str(HERE), str(Path(largeprompt.__file__).parent / "testing"))
BETWEEN = (str(Path(torch.__file__).parent), "<", __file__)
READING = {torch.Tensor.numpy, torch.Tensor.__array__}


def by_a_test() -> bool:
    """Whether the call comes from a test, with nothing of the library between."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(BETWEEN):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(ASKING)


class Placing(TorchFunctionMode):
    """Puts what tests make on a device, and brings back what they read."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device, self.makers = device, _device_constructors()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if (func in self.makers or func is torch.from_numpy) and by_a_test():
            if func is torch.from_numpy:
                return func(*args).to(self.device)
            if kwargs.get("device") is None:
                kwargs = {**kwargs, "device": self.device}
        elif func in READING and by_a_test():
            args = (args[0].cpu(), *args[1:])
        return func(*args, **kwargs)


def place(device: torch.device) -> None:
    """Begin to do so, for the rest of the process."""
    tensor, placed, plain = validation.tensor, PlacedMeasure.__post_init__, torch.Generator

    @functools.wraps(tensor)
    def from_numbers(name, value, *, like=None, finite=True):
        found = tensor(name, value, like=like, finite=finite)
        return found if like is not None or isinstance(value, torch.Tensor) else found.to(device)

    @functools.wraps(placed)
    def without_parameters(self):
        if by_a_test():
            validation.store(self, device=device)
        placed(self)

    class Generator(plain):
        def __new__(cls, device=None):
            return super().__new__(cls, (there if by_a_test() else "cpu") if device is None else device)

    there = device
    validation.tensor, PlacedMeasure.__post_init__, torch.Generator = from_numbers, without_parameters, Generator
    Placing(device).__enter__()
