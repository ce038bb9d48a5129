"""Checks made once, where arguments enter the library.

Each check returns the value in the form in which the library uses it, or raises
:class:`~largeprompt.errors.InvalidArgumentError`.
"""

import functools
import math
import operator
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError

LONGEST = 10**15
LARGEST_COUNT = 2**63 - 1  # what an integer of PyTorch holds
Lengths = float | Sequence[float]  # one prompt length, or several
Randomness = torch.Generator | int  # where random numbers come from: a generator, or a seed
ArrayLike = Tensor | npt.ArrayLike  # what tensors are made of: lists, NumPy arrays, tensors

# sums of a million squares are finite; float32 takes the products of half precision
LARGEST = {
    torch.float64: 1e152,
    torch.float32: 1e18,
    torch.float16: 65504.0,
    torch.bfloat16: 3.3e38,
}


def store(instance: object, **fields: object) -> None:
    """Set checked fields of a frozen dataclass."""
    for name, value in fields.items():
        object.__setattr__(instance, name, value)


def text(value: object) -> str:
    """What was given, for an error message: at most 80 characters, whatever it is."""
    if isinstance(value, int) and abs(value) >= 10**30:  # Python writes no more than 4300 digits
        digits = int(abs(value).bit_length() * math.log10(2)) + 1
        return f"{'a negative' if value < 0 else 'an'} integer of {digits} digits"
    try:
        if isinstance(value, Tensor | np.ndarray) and value.ndim:
            return f"{type(value).__name__} of {value.dtype}, shape {shape_text(value.shape)}"
        found = " ".join(repr(value).split())
    except Exception:  # of a stranger's class, or of an integer inside a list
        found = type(value).__name__
    return found if len(found) <= 80 else f"{found[:77]}..."


def flag(name: str, value: Any) -> bool:
    """Return True or False, given as such: 'no' is not False."""
    instance(name, value, bool | np.bool_, "True or False")
    return bool(value)


def choice(
    name: str, value: Any, allowed: Sequence[str], meaning: str = "", remedy: str = ""
) -> str:
    """Return one of the words that are allowed."""
    if not isinstance(value, str) or value not in allowed:
        words = [repr(word) for word in allowed]
        several = " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
        raise InvalidArgumentError(name, text(value), several + meaning, remedy)
    return value


def instance(name: str, value: Any, kind: Any, allowed: str, remedy: str = "") -> None:
    """Check the type of an argument; ``allowed`` says it in words."""
    if not isinstance(value, kind):
        raise InvalidArgumentError(name, text(value), allowed, remedy)


def listed(name: str, value: Any, allowed: str) -> list[Any]:
    """Return several values as a list; a text is not several values."""
    try:
        if isinstance(value, str | bytes | dict):
            raise TypeError
        return list(value)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidArgumentError(name, text(value), allowed) from None


@functools.cache
def memory(device: torch.device) -> float:
    """Bytes of memory of a GPU, or that this process may use; infinite where unknown."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    try:
        found = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        group = Path("/sys/fs/cgroup/memory.max")  # of the control group
        limit = group.read_text().strip() if group.exists() else "max"
    except (AttributeError, ValueError, OSError):
        return math.inf
    return min(found, float(limit)) if limit.isdigit() else found


def affordable(
    name: str,
    given: object,
    *,
    needed: float = 0,
    seconds: float = 0,
    device: torch.device | None = None,
    remedy: str = "",
) -> None:
    """Refuse what needs more bytes than the device has, or more than a month, before it starts."""
    device = device or torch.device("cpu")
    if needed > 2**28 and needed > memory(device):  # the machine need not be asked about less
        taken = f"{text(given)}, which takes {needed / 2**30:.3g} GiB of memory"
        where = "this machine" if device.type == "cpu" else device
        allowed = f"what fits into the {memory(device) / 2**30:.3g} GiB of {where}"
        raise InvalidArgumentError(name, taken, allowed, remedy)
    if seconds > 30 * 86400:
        taken = f"{text(given)}, which takes some {seconds / 31557600:.3g} years"
        raise InvalidArgumentError(name, taken, "what takes less than a month", remedy)


def shape_text(shape: Sequence[int | str]) -> str:
    """Shape as a person writes it: ``(3, 2)``."""
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def tensor(name: str, value: Any, *, like: Tensor | None = None, finite: bool = True) -> Tensor:
    """Return ``value`` as a real floating tensor.

    Tensors and arrays keep their floating dtype; integers, booleans and Python numbers become
    float64 (or the dtype of ``like``). A narrower dtype than that of ``like`` is promoted; a wider
    one, or another device, is refused.
    """
    if isinstance(value, Tensor):
        result = _plain(name, value)
    else:
        result = _array(name, value)
        if like is not None:  # an array is nowhere else by choice
            result = result.to(device=like.device)
    if result.is_complex():
        raise InvalidArgumentError(name, f"dtype {result.dtype}", "a real dtype")
    if result.is_meta:
        raise InvalidArgumentError(name, "a tensor without entries", "a tensor with entries")
    if like is not None:
        _same_device(name, result, like.device)
        if _has_dtype(value) and torch.promote_types(result.dtype, like.dtype) != like.dtype:
            given, allowed = f"dtype {result.dtype}", f"dtype {like.dtype}, as the other arguments"
            raise InvalidArgumentError(name, given, allowed, f"Use {name}.to({like.dtype}).")
        result = result.to(like.dtype)
    elif not result.is_floating_point():
        result = result.to(torch.float64)
    if finite and result.numel():
        _require_finite(name, result)
    return result


def tensors(like: Tensor | None = None, /, **values: Any) -> tuple[Tensor, ...]:
    """Return arguments as tensors on one device, all of the widest dtype, that of ``like`` too."""
    found = {name: tensor(name, value) for name, value in values.items()}
    dtypes = [found[name].dtype for name, value in values.items() if _has_dtype(value)]
    dtypes += [] if like is None else [like.dtype]
    dtype = functools.reduce(torch.promote_types, dtypes) if dtypes else torch.float64
    placed = [name for name, value in values.items() if isinstance(value, Tensor)]
    place = found[placed[0]] if like is None and placed else like
    device = torch.device("cpu") if place is None else place.device
    for name in placed:
        _same_device(name, found[name], device)
    return tuple(each.to(dtype=dtype, device=device) for each in found.values())


def _has_dtype(value: Any) -> bool:
    """Whether a floating dtype was chosen: Python numbers and integers take that of the others."""
    if isinstance(value, Tensor):
        return value.is_floating_point()
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f"


def _same_device(name: str, value: Tensor, device: torch.device) -> None:
    if value.device != device:
        given, allowed = f"device {value.device}", f"device {device}, as the other arguments"
        raise InvalidArgumentError(name, given, allowed, f"Use {name}.to('{device}').")


def _array(name: str, value: Any) -> Tensor:
    """Array or nested lists as a tensor."""
    if isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any()):
        given = f"{int(np.ma.getmaskarray(value).sum())} masked of {value.size} entries"
        raise InvalidArgumentError(name, given, "numbers without a mask")
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            raise TypeError
        if array.dtype.kind != "c" and not isinstance(value, np.ndarray | np.generic):
            array = array.astype(np.float64)
        return torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        given = f"{type(value).__name__} that does not convert to numbers"
        allowed = "a tensor, an array or nested lists of numbers with equal row lengths"
        raise InvalidArgumentError(name, given, allowed) from None


def _require_finite(name: str, value: Tensor) -> None:
    # one pass, and no second array of the size of the first; a GPU is waited for once
    low, high = torch.stack(torch.aminmax(value.detach())).tolist()
    largest = LARGEST[value.dtype]
    if -largest <= low and high <= largest:
        return
    count = int((~torch.isfinite(value)).sum())
    if count:
        given = f"{count} NaN or infinite of {value.numel()} entries"
        raise InvalidArgumentError(name, given, "finite numbers")
    given = f"an entry of size {max(-low, high):.3g}"
    allowed = f"numbers of size up to {largest:.3g}, whose products are finite"
    raise InvalidArgumentError(name, given, allowed, "Choose other units.")


def _plain(name: str, value: Tensor) -> Tensor:
    """A tensor that is dense, of a usual dtype, and no stranger's subclass."""
    inner = value
    while torch._C._functorch.is_functorch_wrapped_tensor(inner):
        if torch._C._functorch.is_batchedtensor(inner):
            remedy = "Pass the whole batch: its dimensions lead in every call."
            raise InvalidArgumentError(name, "a tensor inside vmap", "plain tensors", remedy)
        inner = torch._C._functorch.get_unwrapped(inner)
    with torch._C.DisableTorchFunctionSubclass():
        if value.is_nested or value.is_quantized or value.layout != torch.strided:
            given = "a sparse, nested or quantized tensor"
            raise InvalidArgumentError(name, given, "a dense tensor", f"Use {name}.to_dense().")
        if type(value) is not Tensor:
            value = value.as_subclass(Tensor)
        if value.is_inference():
            with torch.inference_mode(False):
                value = value.clone()
    if value.is_floating_point() and value.dtype not in LARGEST:
        allowed, remedy = "float64, float32, float16 or bfloat16", f"Use {name}.to(torch.float32)."
        raise InvalidArgumentError(name, f"dtype {value.dtype}", allowed, remedy)
    return value


def in_range(name: str, result: Tensor) -> Tensor:
    """Return what was computed from an argument, unless it overflowed."""
    if not math.isfinite(result.detach().sum()) and not bool(torch.isfinite(result).all()):
        given = "numbers so large that their products overflow"
        allowed = f"sizes whose products are within the range of {result.dtype}"
        raise InvalidArgumentError(name, given, allowed, "Choose other units.")
    return result


def last_dimensions(
    name: str,
    value: Tensor,
    expected: Sequence[int | str],
    meaning: str = "",
    *,
    batch: bool = True,
) -> Tensor:
    """Check the trailing shape.

    Integers must match, names stand for any size of at least one; ``batch``: others may lead.
    """
    tail = value.shape[max(0, value.dim() - len(expected)) :]
    fits = len(tail) == len(expected) and (batch or value.dim() == len(expected))
    if not fits or not all(
        size == want if isinstance(want, int) else size >= 1
        for size, want in zip(tail, expected, strict=True)
    ):
        wanted = f"(..., {', '.join(map(str, expected))})" if batch else shape_text(expected)
        given, allowed = f"shape {shape_text(value.shape)}", f"shape {wanted}{meaning}"
        raise InvalidArgumentError(name, given, allowed)
    return value


def broadcast(names: str, *shapes: torch.Size) -> torch.Size:
    """Broadcast leading shapes, or say which arguments do not fit together."""
    try:
        # PyTorch's imports sympy, which takes a second
        return torch.Size(np.broadcast_shapes(*shapes))
    except ValueError:
        given = f"batch shapes {' and '.join(map(shape_text, shapes))}"
        raise InvalidArgumentError(names, given, "shapes that broadcast together") from None


def square(name: str, value: Tensor) -> Tensor:
    """Check that matrices are square, shape (..., d, d)."""
    if value.dim() < 2 or value.shape[-1] != value.shape[-2]:
        allowed = "square matrices, shape (..., d, d)"
        raise InvalidArgumentError(name, f"shape {shape_text(value.shape)}", allowed)
    return value


def covariance(name: str, value: Tensor) -> Tensor:
    """Check that (..., d, d) matrices are symmetric and positive semidefinite up to rounding."""
    square(name, value)
    matrices = value.detach().to(torch.float64)
    scale = matrices.abs().amax(dim=(-2, -1), keepdim=True)
    slack = 64 * value.shape[-1] * torch.finfo(value.dtype).eps * scale
    asymmetry = (matrices - matrices.mT).abs()
    if bool((asymmetry > slack).any()):
        given = f"an asymmetric matrix, |A - A^T| up to {asymmetry.max():.3g}"
        raise InvalidArgumentError(name, given, "symmetric matrices, such as (A + A.mT) / 2")
    smallest = torch.linalg.eigvalsh((matrices + matrices.mT) / 2)[..., :1, None]
    if bool((smallest < -slack).any()):
        given = f"an indefinite matrix, smallest eigenvalue {smallest.min():.3g}"
        raise InvalidArgumentError(name, given, "positive semidefinite matrices, singular too")
    return value


def weights(name: str, value: Tensor) -> Tensor:
    """Check that (..., k) entries are probabilities: nonnegative, summing to one up to rounding."""
    if bool((value < 0).any()):
        given = f"a negative entry {float(value.min()):.3g}"
        raise InvalidArgumentError(name, given, "nonnegative numbers")
    off = (value.detach().to(torch.float64).sum(-1) - 1).flatten()
    slack = 8 * torch.finfo(value.dtype).eps * max(64, math.sqrt(value.shape[-1]))
    if bool((off.abs() > slack).any()):
        given = f"entries that sum to {1 + off[off.abs().argmax()]:.9g}"
        raise InvalidArgumentError(name, given, "entries that sum to one", "Divide by the sum.")
    return value


def _whole(value: Any) -> int | None:
    """An integer, given as such or as a float without a fraction; None for anything else."""
    if getattr(value, "dtype", type(value)) in (bool, np.bool_, torch.bool):
        return None
    if isinstance(value, float | np.floating):
        return int(value) if value.is_integer() else None
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def integer(name: str, value: Any, *, minimum: int = 1, maximum: int = LARGEST_COUNT) -> int:
    """Return ``value`` as an int in a range; booleans and fractions are refused."""
    found = _whole(value)
    if found is None or not minimum <= found <= maximum:
        most = "2^63 - 1" if maximum == LARGEST_COUNT else maximum
        allowed = f"an integer of at least {minimum} and at most {most}"
        raise InvalidArgumentError(name, text(value if found is None else found), allowed)
    return found


def indices(name: str, value: Any, count: int, meaning: str = "") -> Tensor:
    """Return integers from 0 to ``count`` - 1 as an int64 tensor; floats are refused."""
    try:
        result = value if isinstance(value, Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        result = None
    given = text(value)
    if result is None or result.layout != torch.strided or result.is_meta:
        pass
    elif result.dtype == torch.bool or result.is_floating_point() or result.is_complex():
        given = f"{result.dtype}, shape {shape_text(result.shape)}"
    elif result.numel() and not 0 <= int(result.min()) <= int(result.max()) < count:
        given = f"entries from {int(result.min())} to {int(result.max())}"
    else:
        return result.long()
    raise InvalidArgumentError(name, given, f"{meaning}integers from 0 to {count - 1}")


def length(name: str, value: Any, *, allow_infinity: bool = False) -> float:
    """Return a prompt length as a float: an integer from 1 to 10^15, or infinity.

    Beyond 10^15, L - 1 is no longer exact.
    """
    if allow_infinity and isinstance(value, float) and value == math.inf:
        return value
    found = _whole(value)
    if found is None or not 1 <= found <= LONGEST:
        allowed = f"an integer from 1 to 10^15{', or math.inf' if allow_infinity else ''}"
        raise InvalidArgumentError(name, text(value if found is None else found), allowed)
    return float(found)


def lengths(name: str, value: Any, *, allow_infinity: bool = False) -> tuple[list[float], bool]:
    """Return one or several prompt lengths as a list, and whether several were given."""
    value = _plain(name, value) if isinstance(value, Tensor) else value
    several = (isinstance(value, Sequence) and not isinstance(value, str | bytes)) or (
        isinstance(value, np.ndarray | Tensor) and value.ndim > 0
    )
    entries = list(value) if several else [value]
    if not entries:
        raise InvalidArgumentError(name, "no lengths", "at least one")
    return [length(name, entry, allow_infinity=allow_infinity) for entry in entries], several


def _real(name: str, value: Any, allowed: str) -> float:
    """One number, given as such or as an array of one entry."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value.item() if isinstance(value, np.ndarray | Tensor) else value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InvalidArgumentError(name, text(value), allowed) from None


def number(name: str, value: Any, *, minimum: float = -math.inf) -> float:
    """Return one finite number, of at least ``minimum``, as a float."""
    least = "" if math.isinf(minimum) else f" of at least {minimum:g}"
    allowed = "one nonnegative number" if minimum == 0 else f"one number{least}"
    result = _real(name, value, allowed)
    if not (abs(result) <= LARGEST[torch.float64] and result >= minimum):
        raise InvalidArgumentError(name, str(result), allowed)
    return result


def positive(name: str, value: Any, *, allow_infinity: bool = False) -> float:
    """Return ``value`` as a positive float."""
    largest = LARGEST[torch.float64]
    allowed = f"a positive number from {1 / largest:g} to {largest:g}"
    allowed += " (inf allowed)" if allow_infinity else ""
    result = _real(name, value, allowed)
    if not (1 / largest <= result <= largest or (allow_infinity and result == math.inf)):
        raise InvalidArgumentError(name, str(result), allowed)
    return result


def generator(value: Any, device: torch.device) -> torch.Generator:
    """Return a generator on the device: the one given, or a new one with that seed."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= value < 2**63:
        return torch.Generator(device=device).manual_seed(int(value))
    if not isinstance(value, torch.Generator):
        given = text(value) if type(value) is int else type(value).__name__
        allowed = "a torch.Generator, or a seed from 0 to 2^63 - 1"
        raise InvalidArgumentError("generator", given, allowed)
    if value.device.type != device.type:
        given, remedy = f"device {value.device}", f"Use torch.Generator(device='{device}')."
        raise InvalidArgumentError("generator", given, f"device {device}", remedy)
    return value
