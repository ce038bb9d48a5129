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
import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError

LONGEST = 10**15
FEW = 4096  # numbers that are brought to the CPU sooner than they are asked about on a GPU
LARGEST_COUNT = 2**63 - 1  # what an integer of PyTorch holds
PATIENCE = 30 * 86400.0  # seconds: nobody waits longer for one call
Lengths = float | Sequence[float]  # one prompt length, or several
Randomness = torch.Generator | int  # where random numbers come from: a generator, or a seed


# of which products are taken in float32
HALF = {dtype: torch.finfo(dtype).max for dtype in (torch.float16, torch.bfloat16)}
# entries whose squares are finite, sums of a million of them too
LARGEST = {torch.float64: 1e152, torch.float32: 1e18} | HALF


def store(instance: object, **fields: object) -> None:
    """Set checked fields of a frozen dataclass."""
    for name, value in fields.items():
        object.__setattr__(instance, name, value)


def text(value: object) -> str:
    """What was given, for an error message: at most 80 characters, whatever it is."""
    if isinstance(value, int) and abs(value) >= 10**30:  # Python writes no more than 4300 digits
        return (
            f"{'a negative' if value < 0 else 'an'} integer of "
            f"{int(abs(value).bit_length() * math.log10(2)) + 1} digits"
        )
    try:
        if isinstance(value, Tensor | np.ndarray) and value.ndim:
            return f"{type(value).__name__} of {value.dtype}, shape {shape_text(value.shape)}"
        found = " ".join(repr(value).split())
    except Exception:  # of a stranger's class, or of an integer inside a list
        found = type(value).__name__
    return found if len(found) <= 80 else f"{found[:77]}..."


def flag(name: str, value: Any) -> bool:
    """Return True or False, given as such: 'no' is not False."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidArgumentError(name, text(value), "True or False")
    return bool(value)


def choice(
    name: str, value: Any, allowed: Sequence[str], meaning: str = "", remedy: str = ""
) -> str:
    """Return one of the words that are allowed."""
    if not isinstance(value, str) or value not in allowed:
        words = [repr(word) for word in allowed]
        listed = " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
        raise InvalidArgumentError(name, text(value), listed + meaning, remedy)
    return value


def instance(
    name: str, value: Any, kind: type | tuple[type, ...], allowed: str, remedy: str = ""
) -> None:
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
    """Bytes of memory of a device; of the machine, or what its control group may use, for the CPU.
    Infinite where it is unknown.
    """
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    try:
        found = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        group = Path("/sys/fs/cgroup/memory.max")
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
    """Refuse what needs more bytes than the device has, or what takes longer than a month, before
    it is begun.
    """
    device = device or torch.device("cpu")
    if needed > 2**28 and needed > memory(device):  # the machine need not be asked about less
        allowed = (
            f"what fits into the {memory(device) / 2**30:.3g} GiB of "
            f"{'this machine' if device.type == 'cpu' else device}"
        )
        raise InvalidArgumentError(
            name, f"{text(given)}, which takes {needed / 2**30:.3g} GiB of memory", allowed, remedy
        )
    if seconds > PATIENCE:
        taken = (
            f"{seconds / 86400:.3g} days" if seconds < 3e7 else f"{seconds / 31557600:.3g} years"
        )
        raise InvalidArgumentError(
            name, f"{text(given)}, which takes some {taken}", "what takes less than a month", remedy
        )


def shape_text(shape: Sequence[int | str]) -> str:
    """Shape as a person writes it: ``(3, 2)``."""
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def tensor(name: str, value: Any, *, like: Tensor | None = None, finite: bool = True) -> Tensor:
    """Return ``value`` as a real floating tensor.

    Tensors and arrays keep their floating dtype; integers, booleans and Python numbers become
    float64 (or the dtype of ``like``). A tensor of another dtype or device than ``like`` is refused
    rather than converted: a silent float32 would cost digits.
    """
    if isinstance(value, Tensor):
        result = _plain(name, value)
    elif isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any()):
        given = f"{int(np.ma.getmaskarray(value).sum())} masked of {value.size} entries"
        raise InvalidArgumentError(
            name, given, "numbers without a mask", "Fill them in, or take them out."
        )
    else:
        try:
            array = np.asarray(value)
            python_numbers = not isinstance(value, np.ndarray | np.generic)
            if array.dtype == object or array.dtype.kind not in "biufc":
                raise TypeError
            if python_numbers and array.dtype.kind in "biuf":
                array = array.astype(np.float64)
            result = torch.as_tensor(array)
            if like is not None:  # an array is nowhere else by choice
                converted = (
                    python_numbers or not result.is_floating_point()
                ) and not result.is_complex()
                result = result.to(dtype=like.dtype if converted else None, device=like.device)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            given = f"{type(value).__name__} that does not convert to numbers"
            allowed = "a tensor, an array or nested lists of numbers with equal row lengths"
            raise InvalidArgumentError(name, given, allowed) from None
    if result.is_complex():
        raise InvalidArgumentError(
            name, f"dtype {result.dtype}", "a real dtype", "Take the real part first."
        )
    if not result.is_floating_point():
        result = result.to(torch.float64 if like is None else like.dtype)
    if like is not None and (result.dtype != like.dtype or result.device != like.device):
        kind = "dtype" if result.dtype != like.dtype else "device"
        found, wanted = getattr(result, kind), getattr(like, kind)
        argument = f"{wanted}" if kind == "dtype" else f"'{wanted}'"
        allowed = f"{kind} {wanted}, as the other arguments"
        raise InvalidArgumentError(name, f"{kind} {found}", allowed, f"Use {name}.to({argument}).")
    if result.is_meta:
        raise InvalidArgumentError(
            name, "a tensor without entries, on the device meta", "a tensor with entries"
        )
    if finite and result.numel():
        # a GPU is waited for once
        near = (
            result.detach().cpu() if result.is_cuda and result.numel() <= FEW else result.detach()
        )
        # one pass, and no second array of the size of the first
        low, high = map(float, torch.aminmax(near))
        largest = LARGEST[result.dtype]
        if not (-largest <= low and high <= largest):
            count = int((~torch.isfinite(result)).sum())
            given = (
                f"{count} NaN or infinite of {result.numel()} entries"
                if count
                else f"an entry of size {max(-low, high):.3g}"
            )
            allowed = (
                "finite numbers"
                if count
                else f"numbers of size up to {largest:.3g}, whose products are finite"
            )
            remedy = (
                "Remove or replace them; they often come from an overflow."
                if count
                else "Choose other units."
            )
            raise InvalidArgumentError(name, given, allowed, remedy)
    return result


def _plain(name: str, value: Tensor) -> Tensor:
    """A tensor that is dense, of a usual dtype, and no stranger's subclass."""
    inner = value
    while torch._C._functorch.is_functorch_wrapped_tensor(inner):
        if torch._C._functorch.is_batchedtensor(inner):
            remedy = "Batch dimensions lead in every call: pass the whole batch."
            raise InvalidArgumentError(
                name, "a tensor inside torch.func.vmap", "plain tensors", remedy
            )
        inner = torch._C._functorch.get_unwrapped(inner)
    with torch._C.DisableTorchFunctionSubclass():
        if value.is_nested or value.is_quantized or value.layout != torch.strided:
            kind = (
                "that is nested"
                if value.is_nested
                else "that is quantized"
                if value.is_quantized
                else f"of layout {value.layout}"
            )
            raise InvalidArgumentError(
                name,
                f"a tensor {kind}",
                "a dense tensor",
                f"Use {name}.to_dense() if it is sparse.",
            )
        if type(value) is not Tensor:
            value = value.as_subclass(Tensor)
        if value.is_inference():
            with torch.inference_mode(False):
                value = value.clone()
    if value.is_floating_point() and value.dtype not in LARGEST:
        remedy = f"Use {name}.to(torch.float32)."
        raise InvalidArgumentError(
            name, f"dtype {value.dtype}", "float64, float32, float16 or bfloat16", remedy
        )
    return value


def in_range(name: str, result: Tensor) -> Tensor:
    """Return what was computed from an argument, unless it overflowed."""
    if not math.isfinite(result.detach().sum()) and not bool(torch.isfinite(result).all()):
        allowed, remedy = (
            f"sizes whose products are within the range of {result.dtype}",
            "Choose other units.",
        )
        raise InvalidArgumentError(
            name, "numbers so large that their products overflow", allowed, remedy
        )
    return result


def last_dimensions(
    name: str,
    value: Tensor,
    expected: Sequence[int | str],
    meaning: str = "",
    *,
    batch: bool = True,
) -> Tensor:
    """Check the trailing shape: integers must match, names stand for any size of at least one;
    ``batch``: others may lead.
    """
    tail = value.shape[max(0, value.dim() - len(expected)) :]
    fits = len(tail) == len(expected) and (batch or value.dim() == len(expected))
    if fits and tail == expected:
        return value
    if not fits or not all(
        size == want if isinstance(want, int) else size >= 1
        for size, want in zip(tail, expected, strict=True)
    ):
        wanted = f"(..., {', '.join(map(str, expected))})" if batch else shape_text(expected)
        raise InvalidArgumentError(
            name, f"shape {shape_text(value.shape)}", f"shape {wanted}{meaning}"
        )
    return value


def shaped(
    name: str,
    value: Any,
    expected: Sequence[int | str],
    meaning: str = "",
    *,
    like: Tensor | None = None,
    batch: bool = True,
    finite: bool = True,
) -> Tensor:
    """Return ``value`` as a real floating tensor of the expected trailing shape: :func:`tensor` and
    :func:`last_dimensions`.
    """
    if isinstance(value, Tensor):  # a wrong shape tells more than a wrong dtype
        value = _plain(name, value)
        last_dimensions(name, value, expected, meaning, batch=batch)
        return tensor(name, value, like=like, finite=finite)
    return last_dimensions(
        name, tensor(name, value, like=like, finite=finite), expected, meaning, batch=batch
    )


def broadcast(names: str, *shapes: torch.Size) -> torch.Size:
    """Broadcast leading shapes, or say which arguments do not fit together."""
    try:
        # PyTorch's imports sympy, which takes a second
        return torch.Size(np.broadcast_shapes(*shapes))
    except ValueError:
        given = " and ".join(map(shape_text, shapes))
        raise InvalidArgumentError(
            names, f"batch shapes {given}", "shapes that broadcast together"
        ) from None


def square(name: str, value: Tensor) -> Tensor:
    """Check that matrices are square, shape (..., d, d)."""
    if value.dim() < 2 or value.shape[-1] != value.shape[-2]:
        raise InvalidArgumentError(
            name, f"shape {shape_text(value.shape)}", "square matrices, shape (..., d, d)"
        )
    return value


def covariance(name: str, value: Tensor) -> Tensor:
    """Check that (..., d, d) matrices are symmetric and positive semidefinite up to rounding."""
    square(name, value)
    matrices = value.detach().to(torch.float64)
    scale = matrices.abs().amax(dim=(-2, -1), keepdim=True)
    slack = 64 * value.shape[-1] * torch.finfo(value.dtype).eps
    asymmetry = (matrices - matrices.mT).abs().amax(dim=(-2, -1), keepdim=True)
    if bool((asymmetry > slack * scale).any()):
        given, remedy = (
            f"an asymmetric matrix, |A - A^T| up to {asymmetry.max():.3g}",
            "Use (A + A.mT) / 2 if it is rounding.",
        )
        raise InvalidArgumentError(name, given, "symmetric matrices", remedy)
    smallest = torch.linalg.eigvalsh((matrices + matrices.mT) / 2)[..., :1, None]
    if bool((smallest < -slack * scale).any()):
        given, allowed = (
            f"an indefinite matrix, smallest eigenvalue {smallest.min():.3g}",
            "positive semidefinite matrices, singular too",
        )
        raise InvalidArgumentError(
            name,
            given,
            allowed,
            "Clip the negative eigenvalues, or check the order of the arguments.",
        )
    return value


def weights(name: str, value: Tensor) -> Tensor:
    """Check that (..., k) entries are probabilities: nonnegative, summing to one up to rounding."""
    if bool((value < 0).any()):
        raise InvalidArgumentError(
            name, f"a negative entry {float(value.min()):.3g}", "nonnegative numbers"
        )
    total = value.detach().to(torch.float64).sum(-1)
    slack = 8 * torch.finfo(value.dtype).eps * max(64, math.sqrt(value.shape[-1]))
    if bool(((total - 1).abs() > slack).any()):
        worst = total.flatten()[(total - 1).abs().argmax()]
        raise InvalidArgumentError(
            name,
            f"entries that sum to {worst:.9g}",
            "entries that sum to one",
            "Divide by the sum.",
        )
    return value


def integer(name: str, value: Any, *, minimum: int = 1, maximum: int = LARGEST_COUNT) -> int:
    """Return ``value`` as an int from ``minimum`` to ``maximum``; booleans and non-integral floats
    are refused.
    """
    allowed = f"an integer of at least {minimum}" + (
        "" if maximum == LARGEST_COUNT else f" and at most {maximum}"
    )
    try:
        if isinstance(value, bool | np.bool_) or (
            isinstance(value, Tensor) and value.dtype == torch.bool
        ):
            raise TypeError
        result = (
            int(value)
            if isinstance(value, float | np.floating) and value.is_integer()
            else operator.index(value)
        )
    except (TypeError, ValueError, RuntimeError):
        raise InvalidArgumentError(name, text(value), allowed) from None
    if not minimum <= result <= maximum:
        remedy = "It must fit into 64 bits." if result > LARGEST_COUNT else ""
        raise InvalidArgumentError(name, text(result), allowed, remedy)
    return result


def indices(name: str, value: Any, count: int, meaning: str = "") -> Tensor:
    """Return integers from 0 to ``count`` - 1, one or an array of them, as an int64 tensor;
    booleans and floats are refused.
    """
    allowed = f"{meaning}integers from 0 to {count - 1}"
    try:
        result = value if isinstance(value, Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidArgumentError(name, text(value), allowed) from None
    if result.layout != torch.strided or result.is_meta:
        raise InvalidArgumentError(
            name,
            f"a tensor of layout {result.layout} on {result.device}",
            f"{allowed}, in a dense tensor",
        )
    if result.dtype == torch.bool or result.is_floating_point() or result.is_complex():
        raise InvalidArgumentError(
            name, f"{result.dtype}, shape {shape_text(result.shape)}", allowed
        )
    if result.numel() and not 0 <= int(result.min()) <= int(result.max()) < count:
        raise InvalidArgumentError(
            name, f"entries from {int(result.min())} to {int(result.max())}", allowed
        )
    return result.long()


def length(name: str, value: Any, *, allow_infinity: bool = False) -> float:
    """Return a prompt length as a float: an integer from 1 to 10^15, beyond which L - 1 is no
    longer exact, or infinity.
    """
    if allow_infinity and isinstance(value, float) and value == math.inf:
        return value
    if (
        isinstance(value, Tensor)
        and value.dim() == 0
        and not value.is_floating_point()
        and value.dtype != torch.bool
    ):
        value = int(value)
    try:
        return float(integer(name, value, maximum=LONGEST))
    except InvalidArgumentError as error:
        allowed = f"an integer from 1 to 10^15{', or math.inf' if allow_infinity else ''}"
        raise InvalidArgumentError(name, error.given, allowed) from None


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


def number(name: str, value: Any, *, minimum: float = -math.inf) -> float:
    """Return one finite number, of at least ``minimum``, as a float."""
    allowed = (
        "one nonnegative number"
        if minimum == 0
        else "one number" + ("" if math.isinf(minimum) else f" from {minimum:g} on")
    )
    try:
        found = tensor(name, value)
    except InvalidArgumentError:
        raise InvalidArgumentError(name, text(value), allowed) from None
    if found.numel() != 1:
        raise InvalidArgumentError(name, f"shape {shape_text(found.shape)}", allowed)
    result = float(found.detach())
    if result < minimum:
        raise InvalidArgumentError(name, str(result), allowed)
    return result


def positive(name: str, value: Any, *, allow_infinity: bool = False) -> float:
    """Return ``value`` as a positive float."""
    allowed = "a positive number" + (" (inf allowed)" if allow_infinity else "")
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        result = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InvalidArgumentError(name, text(value), allowed) from None
    if not result > 0 or (math.isinf(result) and not allow_infinity):
        raise InvalidArgumentError(name, str(result), allowed)
    largest = LARGEST[torch.float64]
    if not 1 / largest <= result <= largest and not math.isinf(result):
        raise InvalidArgumentError(
            name,
            str(result),
            f"{allowed} from {1 / largest:g} to {largest:g}",
            "Choose other units.",
        )
    return result


def generator(value: Any, device: torch.device) -> torch.Generator:
    """Return a generator on the right device: the one given, or a new one with the integer given as
    its seed.
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if not 0 <= value < 2**63:
            raise InvalidArgumentError(
                "generator", text(value), "a seed from 0 to 2^63 - 1, or a torch.Generator"
            )
        return torch.Generator(device=device).manual_seed(int(value))
    if not isinstance(value, torch.Generator):
        raise InvalidArgumentError(
            "generator",
            type(value).__name__,
            "a torch.Generator, or an integer as its seed",
            "Use 0.",
        )
    if value.device.type != device.type:
        remedy = f"Use torch.Generator(device='{device}')."
        raise InvalidArgumentError(
            "generator", f"device {value.device}", f"device {device}", remedy
        )
    return value
