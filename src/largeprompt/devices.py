"""Where and under which settings of NumPy and PyTorch numbers are computed."""

import contextlib
import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def moved(value: Any, device: torch.device) -> Any:
    """A tensor, a law, a layer, or a tuple or list of them on a device; anything else as it is."""
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(moved(entry, device) for entry in value)
    if isinstance(value, tuple | list):
        return type(value)(moved(entry, device) for entry in value)
    return value.to(device=device) if hasattr(value, "to") and _device(value) is not None else value


def _device(value: Any) -> torch.device | None:
    """Where a tensor, a law or a layer is; the device meta, without numbers, is nowhere."""
    found = getattr(value, "device", getattr(getattr(value, "U", None), "device", None))
    return found if isinstance(found, torch.device) and found.type != "meta" else None


def computed_on_cpu(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Bring arguments to the CPU, and the result to where the first was, with their gradients."""

    @functools.wraps(function)
    def anywhere(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        places = [
            place for value in (*args, *kwargs.values()) if (place := _device(value)) is not None
        ]
        if all(place.type == "cpu" for place in places):
            return function(*args, **kwargs)
        cpu = torch.device("cpu")
        found = function(
            *moved(args, cpu), **{name: moved(value, cpu) for name, value in kwargs.items()}
        )
        result: Result = moved(found, places[0])
        return result

    return anywhere


def _dtype(value: Any) -> torch.dtype | None:
    """Floating dtype of a tensor, an array, a law or a layer; None for anything else."""
    if isinstance(value, np.ndarray):
        sizes = {2: torch.float16, 4: torch.float32, 8: torch.float64}
        return sizes.get(value.itemsize) if value.dtype.kind == "f" else None
    found = getattr(value, "dtype", getattr(getattr(value, "U", None), "dtype", None))
    usual = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    return found if found in usual else None


def one_dtype(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Bring a layer and a law, among the first three arguments, to the widest dtype of these.

    Tensors and arrays are promoted where they are checked.
    """

    def widened(value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, Tensor | np.ndarray) or _dtype(value) in (None, dtype):
            return value
        return value.to(dtype=dtype)

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Result:
        named = {name: kwargs[name] for name in ("attention", "mu", "z") if name in kwargs}
        found = {_dtype(value) for value in (*args[:3], *named.values())}
        dtypes = [dtype for dtype in found if dtype]
        if len(dtypes) > 1:
            dtype = functools.reduce(torch.promote_types, dtypes)
            args = (*(widened(value, dtype) for value in args[:3]), *args[3:])
            kwargs |= {name: widened(value, dtype) for name, value in named.items()}
        return function(*args, **kwargs)

    return inside


def sheltered(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a public function under our own settings, and answer mistyped keywords with the nearest.

    Settings: one dtype, NumPy's default handling of errors, no ``torch.inference_mode``.
    """
    known = inspect.signature(function).parameters
    open_ended = any(each.kind is each.VAR_KEYWORD for each in known.values())
    function = one_dtype(function)

    @functools.wraps(function)
    def inside(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not open_ended and (unknown := kwargs.keys() - known.keys()):
            _mistyped(function.__name__, sorted(unknown)[0], list(known))
        with contextlib.ExitStack() as stack:
            stack.enter_context(
                np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
            )
            if torch.is_inference_mode_enabled():
                stack.enter_context(torch.inference_mode(False))
            return function(*args, **kwargs)

    return inside


def _mistyped(function: str, keyword: str, known: list[str]) -> NoReturn:
    near = difflib.get_close_matches(keyword, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known)}."
    raise TypeError(f"{function}() has no argument {keyword!r}; {hint}")
