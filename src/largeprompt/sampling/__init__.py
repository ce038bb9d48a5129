"""Finite prompts, drawn: what attention does to prompts of i.i.d. tokens, nested over lengths.

``streams`` draws every token, for every law; ``reduced`` draws one scalar for each token, for
Gaussian tokens and their mixtures. Both are plain PyTorch and run on the device of the law.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.devices import one_dtype
from largeprompt.display.labels import named
from largeprompt.display.look import Axes, draw_errors
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Gaussian, GaussianMixture, Measure
from largeprompt.sampling.reduced import sample_reduced
from largeprompt.sampling.streams import draw_seed, sample_full

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["PromptSamples", "sample_prompts"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PromptSamples:
    """Attention over drawn prompts.

    Attributes
    ----------
    lengths
        Prompt lengths L.
    outputs
        T_L, shape ``(n_lengths, replicas, *heads, *queries, o)``. Along the first dimension prompts
        are prefixes of one another.
    readout_jacobian
        V C_L with C_L the softmax-weighted covariance of the tokens, shape ``(n_lengths, replicas,
        *heads, *queries, o, d)``, from which dT/dU = (V C_L) ⊗ z; None when it was not asked for.
    """

    lengths: tuple[int, ...]
    outputs: Tensor
    readout_jacobian: Tensor | None = None

    @property
    def replicas(self) -> int:
        """Number of independent prompts at each length."""
        return self.outputs.shape[1]

    def mse(self, limit: Tensor) -> tuple[Tensor, Tensor]:
        """Mean over replicas of ‖T_L - limit‖², and its standard error, each of shape ``(n_lengths,
        *heads, *queries)``.

        Parameters
        ----------
        limit
            What the outputs are compared with, shape ``(*heads, *queries, o)`` or one that
            broadcasts to it.

        Returns
        -------
        tuple of Tensor
            The mean, and its standard error; infinite for a single replica, which says nothing
            about the spread.
        """
        limit = validation.tensor("limit", limit, like=self.outputs)
        shape = self.outputs.shape[2:]
        try:
            limit = limit.expand(shape)
        except RuntimeError:
            given, wanted = validation.shape_text(limit.shape), validation.shape_text(shape)
            raise InvalidArgumentError(
                "limit", f"shape {given}", f"shape {wanted}, or one that broadcasts to it"
            ) from None
        squared = (self.outputs - limit).square().sum(-1)
        mean = squared.mean(1)
        if self.replicas == 1:
            return mean, torch.full_like(mean, math.inf)
        return mean, squared.std(1, correction=1) / math.sqrt(self.replicas)

    def plot(self, limit: Tensor | None = None, axes: Axes | None = None, **line: Any) -> Axes:
        """Draw the root mean squared distance to a limit against the prompt length, with two
        standard errors on either side.

        Parameters
        ----------
        limit
            As for :meth:`mse`; when left out, the mean output over the longest prompts, which is
            nearest to it.
        axes
            Where to draw: axes of matplotlib, such as those of a law; new ones when left out.
        line
            ``color``, ``label`` and whatever else ``Axes.errorbar`` takes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes, for more to be drawn on.
        """
        mean, error = self.mse(self.outputs[-1].mean(0) if limit is None else limit)
        root = mean.sqrt()
        # twice the standard error of the root, by the delta method; one replica has none, and gets
        # no bar
        spread = torch.where(torch.isfinite(error) & (mean > 0), error / root, 0.0)
        return draw_errors(
            axes,
            self.lengths,
            root,
            spread,
            **{"label": "drawn", "ls": "none", "capsize": 2} | line,
        )

    def to_xarray(self) -> xr.Dataset:
        """The outputs as a labeled dataset of dimensions length, replica, batch (or batch_0,
        batch_1, ...) and output.
        """
        import xarray as xr  # brings pandas along, and few need it

        count = self.outputs.dim() - 3
        batch = ["batch"] if count == 1 else [f"batch_{i}" for i in range(count)]
        lengths = ("length", list(self.lengths), named("prompt length", "tokens"))
        outputs = (
            ["length", "replica", *batch, "output"],
            self.outputs.cpu().numpy(),
            named("output over a drawn prompt"),
        )
        places = ("output", range(self.outputs.shape[-1]), named("coordinate of the output"))
        return xr.Dataset({"outputs": outputs}, coords={"length": lengths, "output": places})

    def __repr__(self) -> str:
        shape = validation.shape_text(self.outputs.shape)
        jacobian = ", with readout_jacobian" if self.readout_jacobian is not None else ""
        spread = ""
        if self.outputs.dim() == 3 and self.replicas > 1:  # one query
            ends = self.outputs[[0, -1]].var(1).sum(-1).sqrt().tolist()
            spread = f", spread {' to '.join(dict.fromkeys(f'{end:.2g}' for end in ends))}"
        return (
            f"PromptSamples(lengths={self.lengths}, replicas={self.replicas}, outputs of shape "
            f"{shape}{jacobian}{spread})"
        )


@one_dtype
def sample_prompts(
    attention: SoftmaxAttention,
    mu: Measure,
    z: validation.ArrayLike,
    lengths: int | Sequence[int],
    replicas: int,
    generator: validation.Randomness,
    *,
    reduced: bool = False,
    jacobian: bool = False,
) -> PromptSamples:
    """Draw prompts of i.i.d. tokens and read them with softmax attention: T_L = V Σ_l w_l z_l, w =
    softmax of the scores z_l·Uz.

    Prompts are nested: each replica is one stream of tokens, and each length reads a prefix of it,
    so that differences between lengths are less noisy than either. The stream is never held as a
    whole: 10⁸ tokens take no more memory than 10⁵.

    The same seed gives the same tokens: more replicas come after the earlier ones, and further
    lengths below the longest change nothing (another longest length gives other tokens). No
    gradient flows through the samples.

    Parameters
    ----------
    attention
        Softmax attention; heads read the same tokens.
    mu
        Law of the tokens, without batch dimensions.
    z
        Queries, shape ``(*queries, d)``.
    lengths
        Prompt lengths, strictly increasing.
    replicas
        Number of independent prompts.
    generator
        Source of randomness, of which one number is drawn, or a seed.
    reduced
        For Gaussian and GaussianMixture tokens and a single head: draw one scalar for each token,
        and about √L vectors, instead of L tokens in R^d. The joint law over the lengths is exact.
        But each query has tokens of its own; with ``reduced=False`` queries share each prompt.
    jacobian
        Also return V C_L, from which dT/dU = (V C_L) ⊗ z; not with ``reduced``.

    Returns
    -------
    PromptSamples
        Outputs by length and replica; its method ``mse`` compares them with a limit.

    Examples
    --------
    >>> from largeprompt.sampling import sample_prompts
    >>> attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    >>> samples = sample_prompts(attention, lp.Rademacher(1), [0.5], (10, 1000), 200, 0)
    >>> samples
    PromptSamples(lengths=(10, 1000), replicas=200, outputs of shape (2, 200, 1), spread 0.26 ...)
    >>> mean, standard_error = samples.mse(attention(lp.Rademacher(1), [0.5]))
    >>> bool(mean[1] < mean[0] / 50)
    True
    """
    lengths = _lengths(lengths)
    replicas = validation.integer("replicas", replicas)
    reduced, jacobian = validation.flag("reduced", reduced), validation.flag("jacobian", jacobian)
    if not isinstance(attention, SoftmaxAttention):
        raise InvalidArgumentError("attention", type(attention).__name__, "SoftmaxAttention")
    values, queries = attention._values(mu, z)
    if mu.batch_shape:
        given = f"a batch of laws of shape {validation.shape_text(mu.batch_shape)}"
        raise InvalidArgumentError(
            "mu", given, "a single law", "Call once for each member of the batch."
        )
    generator = validation.generator(generator, mu.device)
    with torch.no_grad():
        u = attention._tilts(queries)
        _affordable(u, attention.V, lengths, replicas, reduced=reduced, jacobian=jacobian)
        if not reduced:
            return PromptSamples(
                lengths,
                *sample_full(
                    u, values, mu, lengths, replicas, draw_seed(generator), jacobian=jacobian
                ),
            )
        if jacobian:
            raise InvalidArgumentError(
                "jacobian", "True with reduced=True", "False", "Use reduced=False for Jacobians."
            )
        if attention.heads:
            given = f"heads {validation.shape_text(attention.heads)}"
            raise InvalidArgumentError(
                "attention",
                given,
                "a single head, with reduced=True",
                "Use reduced=False for heads.",
            )
        if not isinstance(mu, Gaussian | GaussianMixture):
            raise InvalidArgumentError(
                "mu",
                validation.text(mu),
                "Gaussian or GaussianMixture, with reduced=True",
                "Use reduced=False.",
            )
        outputs = sample_reduced(
            u.reshape(-1, mu.dim), attention.V, mu, lengths, replicas, draw_seed(generator)
        )
        return PromptSamples(
            lengths, outputs.reshape(len(lengths), replicas, *u.shape[:-1], outputs.shape[-1])
        )


def _affordable(
    u: Tensor, V: Tensor, lengths: tuple[int, ...], replicas: int, *, reduced: bool, jacobian: bool
) -> None:
    """Refuse samples that do not fit into memory, or that take months to draw."""
    queries = u[..., 0].numel()
    numbers = len(lengths) * replicas * queries * V.shape[-2] * (1 + u.shape[-1] if jacobian else 1)
    remedy = "Ask finite_prompt, whose cost does not depend on either, or draw fewer."
    validation.affordable(
        "replicas", replicas, needed=numbers * u.element_size(), device=u.device, remedy=remedy
    )
    rate = 1e11 if u.is_cuda else 1e8 * torch.get_num_threads()  # normal numbers a second
    drawn = replicas * lengths[-1] * (queries if reduced else u.shape[-1])
    validation.affordable(
        "replicas and lengths", (replicas, lengths[-1]), seconds=drawn / rate, remedy=remedy
    )


def _lengths(lengths: int | Sequence[int]) -> tuple[int, ...]:
    """Check that prompt lengths are positive and strictly increasing; one number is one length."""
    try:
        entries: tuple[object, ...] = tuple(lengths)  # type: ignore[arg-type]
    except (TypeError, RuntimeError):  # not iterable: one length
        entries = (lengths,)
    result = tuple(
        validation.integer("lengths", entry, maximum=validation.LONGEST) for entry in entries
    )
    if not result or any(second <= first for first, second in itertools.pairwise(result)):
        raise InvalidArgumentError(
            "lengths", str(result), "strictly increasing positive integers, at least one"
        )
    return result
