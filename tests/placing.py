"""The tests on another device, ``pytest --device cuda``: what a test makes from numbers lands
there, and the library gets no help.

Tensors that a test makes, numbers that it hands to the library in lists, laws without parameters,
and generators are put on the device; what a test reads as NumPy comes back. Nothing that the
library itself makes is touched, so that a tensor which it makes in the wrong place still fails.
"""

import functools
import sys
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

import largeprompt
from largeprompt import validation
from largeprompt.measures.placed import PlacedMeasure

HERE = Path(__file__).parent
ASKING = (str(HERE), str(Path(largeprompt.__file__).parent / "testing"))
LIBRARY = str(Path(largeprompt.__file__).parent)
READING = {torch.Tensor.numpy, torch.Tensor.__array__}
ON_CPU = (  # parts behind the doors, which are on the CPU by design
    *(
        f"law/test_{name}.py"
        for name in ("blocks", "contour", "density", "engine", "nodes", "tokens")
    ),
    "law/test_chain",
    "theory/test_accuracy",
    "planning/test_dependent.py::test_drawn_chains",
    "measures/numerics/test_recurrence.py",
    "measures/test_chain.py",
    "planning/test_average.py::test_small_nodes",
    "testing/test_contracts.py::TestNgrams",
    "testing/test_contracts.py::TestUsersMeasure",
    "training/dynamics/test_flow.py::test_fixed_steps_follow",
    "training/dynamics/test_trajectory.py",
    "training/optima",
    "training/risk",
    "training/tasks",
    "training/gaps",
)
# tests that compare with the CPU by themselves, or whose numbers hold for what a generator of the
# CPU draws
MADE_THERE = (
    "attention/test_operators.py::test_a_layer_in_another_precision",
    "attention/test_operators.py::test_a_users_law",
    "certificates/test_output.py::test_a_users_cgf",
    "depth/test_limit.py::test_gaussian_stays_gaussian",
    "depth/test_hermite.py",
    "depth/test_noise.py",
    "measures/finite/test_atoms.py::test_peak_memory",
    "measures/numerics/test_rules.py::test_products",
    "measures/test_running.py::test_sequence_parallel",
    "planning/test_average.py::test_an_estimate_has_an_error_bar",
    "sampling/test_reduced.py::test_singular_tokens",
    "sampling/test_streams.py::test_samples_draw",
    "sampling/test_streams.py::test_cells_have",
    "training/dynamics/test_descent.py::test_an_interrupted",
    "training/dynamics/test_descent.py::test_steps_that",
    "training/dynamics/test_descent.py::test_stochastic",
)


def by_a_test() -> bool:
    """Whether the call comes from a test, with nothing of the library between."""
    frame = sys._getframe(1)
    while frame is not None:
        code, frame = frame.f_code, frame.f_back
        if code.co_filename.startswith(ASKING) and code.co_filename != __file__:
            return True
        # which a test calls by making a law
        if code.co_filename.startswith(LIBRARY) and code.co_name != "__post_init__":
            return False
    return False


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


def there(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests that mean something on another device."""
    names = [item.nodeid.removeprefix(f"{HERE.name}/") for item in items]
    return [
        item
        for item, name in zip(items, names, strict=True)
        if not name.startswith(ON_CPU + MADE_THERE)
    ]


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
        def __new__(cls, where=None, *, device=None):
            asked = where if device is None else device
            return super().__new__(
                cls, (default if by_a_test() else "cpu") if asked is None else asked
            )

    default = device
    validation.tensor, PlacedMeasure.__post_init__, torch.Generator = (
        from_numbers,
        without_parameters,
        Generator,
    )
    Placing(device).__enter__()
