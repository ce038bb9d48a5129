"""Markov chains over a finite alphabet: the prompts of in-context n-gram learning."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Self

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.finite.laws import Discrete
from largeprompt.measures.numerics.recurrence import recurrent_contexts
from largeprompt.validation import ArrayLike

MOST_CONTEXTS = 4096  # matrices of this size are held in memory
MOST_ENTRIES = 1 << 27  # of the atoms of windows and of paths: 1 GiB


@dataclasses.dataclass(frozen=True, eq=False, repr=False, init=False)
class MarkovChain:
    """A stationary Markov chain of any order: x_t depends on the ``order`` symbols before it.

    The windows (x_t, ..., x_{t+k-1}), one-hot, are tokens of a prompt, whose empirical measure
    tends to the law of one window, :meth:`ngrams`; :meth:`long_run_covariance` gives the
    fluctuations around it. Contexts, that is runs of ``order`` symbols, make a chain of order one
    (the lifted chain). It must have one closed class, without period; contexts outside it may exist
    and have stationary probability 0.

    Parameters
    ----------
    transition
        P(next symbol | context), shape (m, ..., m, m): first the ``order`` symbols of the context,
        oldest first, then the next.

    Examples
    --------
    >>> chain = lp.measures.MarkovChain([[0.9, 0.1], [0.3, 0.7]])
    >>> chain
    MarkovChain(alphabet=2, order=1, relaxation_time=2.5)
    >>> chain.stationary
    tensor([0.7500, 0.2500], dtype=torch.float64)
    >>> chain.ngrams(2).weights  # of the windows 00, 01, 10, 11
    tensor([0.6750, 0.0750, 0.0750, 0.1750], dtype=torch.float64)
    >>> chain.long_run_covariance([[0.0, 1.0]])  # of the symbol 1: 0.75·0.25·(1 + 0.6)/(1 - 0.6)
    tensor([[0.7500]], dtype=torch.float64)
    """

    transition: Tensor
    _recurrent: Tensor

    def __init__(self, transition: ArrayLike) -> None:
        transition = validation.tensor("transition", transition)
        shape = transition.shape
        if len(shape) < 2 or shape[-1] < 2 or len(set(shape)) != 1:
            allowed = "shape (m, ..., m, m), one axis more than the order, m >= 2"
            given = f"shape {validation.shape_text(shape)}"
            raise InvalidArgumentError("transition", given, allowed)
        _check_contexts("transition", shape[-1], len(shape) - 1)
        # paths are summed on the CPU
        validation.store(self, transition=validation.weights("transition", transition).cpu())
        validation.store(self, _recurrent=recurrent_contexts(self.rows, self._successors))

    @classmethod
    def random(
        cls, alphabet: int, order: int, concentration: float, generator: validation.Randomness
    ) -> Self:
        """Chain whose rows are drawn from the symmetric Dirichlet law; concentration 1: uniform."""
        alphabet = validation.integer("alphabet", alphabet, minimum=2)
        order = validation.integer("order", order)
        concentration = validation.positive("concentration", concentration)
        generator = validation.generator(generator, torch.device("cpu"))
        _check_contexts("order", alphabet, order)
        shape = torch.full((alphabet,) * (order + 1), concentration + 1, dtype=torch.float64)
        # a gamma variable of shape a is one of shape a + 1 times U^{1/a}: in logarithms, which do
        # not underflow for small a
        larger = torch._standard_gamma(shape, generator=generator)
        uniform = 1 - torch.rand(shape.shape, generator=generator, dtype=torch.float64)
        return cls(torch.softmax(torch.log(larger) + torch.log(uniform) / concentration, -1))

    @property
    def alphabet(self) -> int:
        """Number m of symbols."""
        return self.transition.shape[-1]

    @property
    def order(self) -> int:
        """Number r of symbols in a context."""
        return self.transition.dim() - 1

    @property
    def contexts(self) -> int:
        """Number m^r of contexts."""
        return int(self.alphabet**self.order)

    @property
    def rows(self) -> Tensor:
        """P(next | context) with contexts numbered in lexicographic order, shape (m^r, m)."""
        return self.transition.reshape(self.contexts, self.alphabet)

    @functools.cached_property
    def matrix(self) -> Tensor:
        """Transition matrix of the lifted chain, shape (m^r, m^r)."""
        lifted = self.transition.new_zeros(self.contexts, self.contexts)
        return lifted.scatter_(1, self._successors, self.rows)

    @functools.cached_property
    def stationary(self) -> Tensor:
        """Law π of the last ``order`` symbols, shape (m,) * order: π P = π for the lifted chain."""
        ones = torch.ones_like(self.matrix)
        found = _solved((self._eye - self.matrix + ones).mT, ones[0])
        found = found.clamp_min(0.0) * self._recurrent
        if not float(found.sum()) > 0:
            raise _falls_apart()
        return (found / found.sum()).reshape(self.transition.shape[:-1])

    @functools.cached_property
    def eigenvalues(self) -> Tensor:
        """Eigenvalues of the lifted chain by falling modulus, complex, shape (m^r,)."""
        try:
            found: Tensor = torch.linalg.eigvals(self.matrix)
        except RuntimeError:  # LinAlgError
            raise _falls_apart() from None
        return found[torch.argsort(found.abs(), descending=True)]

    @property
    def relaxation_time(self) -> float:
        """1/(1 - abs(λ₂)), steps until the past is forgotten; infinite where rounding hides it."""
        try:
            gap = 1 - float(self.eigenvalues[1].abs())
        except InvalidArgumentError:  # no eigenvalues: the chain falls apart
            return math.inf
        return 1 / gap if gap > 0 else math.inf

    def lazy(self, holding: float) -> MarkovChain:
        """The chain that repeats its last symbol with probability ``holding``."""
        if not (isinstance(holding, int | float) and 0 <= holding < 1):
            allowed = "a number from 0 up to, not including, 1"
            raise InvalidArgumentError("holding", validation.text(holding), allowed)
        stay = torch.eye(self.alphabet, dtype=self.transition.dtype).expand_as(self.transition)
        return MarkovChain((1 - holding) * self.transition + holding * stay)

    def _lifted(self, order: int) -> MarkovChain:
        """The chain as one of a higher order."""
        if order == self.order:
            return self
        _check_contexts("order", self.alphabet, order)
        return MarkovChain(self.transition.expand((self.alphabet,) * (order + 1)).contiguous())

    def independent(self) -> MarkovChain:
        """The control without memory: independent symbols of the stationary law."""
        return MarkovChain(self.ngram_law(1).expand_as(self.transition).contiguous())

    def ngram_law(self, k: int) -> Tensor:
        """Probability of each window of k symbols, shape (m,) * k."""
        k = validation.integer("k", k)
        _check_windows(self.alphabet, k, 1)
        law = self.stationary
        for _ in range(self.order - k):
            law = law.sum(0)
        for _ in range(k - self.order):
            law = law.unsqueeze(-1) * self.transition
        return law

    def ngrams(self, k: int) -> Discrete:
        """Law of one token, k one-hot symbols in a row: atoms (m^k, k·m) in lexicographic order.

        It is the limit of the empirical measure of the tokens of a long path.
        """
        k = validation.integer("k", k)
        _check_windows(self.alphabet, k, k * self.alphabet)
        law = self.ngram_law(k)
        windows = torch.cartesian_prod(*[torch.arange(self.alphabet)] * k).reshape(-1, k)
        return Discrete(self.tokens(windows, k)[:, 0], (law / law.sum()).flatten())

    def tokens(self, symbols: ArrayLike, k: int) -> Tensor:
        """One-hot windows of k symbols of paths (..., length), shape (..., length - k + 1, k·m)."""
        k = validation.integer("k", k)
        symbols = validation.indices("symbols", symbols, self.alphabet)
        if symbols.dim() < 1:
            raise InvalidArgumentError("symbols", "one number", "paths, shape (..., length)")
        if symbols.shape[-1] < k:
            given = f"paths of {symbols.shape[-1]} symbols"
            raise InvalidArgumentError("symbols", given, f"at least k = {k} symbols")
        hot = torch.nn.functional.one_hot(symbols, self.alphabet).to(self.transition.dtype)
        return hot.unfold(-2, k, 1).transpose(-1, -2).flatten(-2)

    def sample(self, length: int, replicas: int, generator: validation.Randomness) -> Tensor:
        """Stationary paths of ``length`` symbols, integers of shape (replicas, length)."""
        length = validation.integer("length", length)
        replicas = validation.integer("replicas", replicas)
        generator = validation.generator(generator, torch.device("cpu"))
        if replicas * length > MOST_ENTRIES:
            given = f"{replicas} paths of {length} symbols"
            allowed, remedy = f"at most {MOST_ENTRIES} symbols in all", "Draw fewer at a time."
            raise InvalidArgumentError("length", given, allowed, remedy)
        m, r, n = self.alphabet, self.order, self.contexts
        rows = self.rows.cumsum(-1)
        # ends in 1: no uniform number falls on a symbol of probability 0
        rows = rows / rows[:, -1:]
        start = self.stationary.flatten()
        context = torch.multinomial(start, replicas, replacement=True, generator=generator)
        path = torch.empty(max(length, r), replicas, dtype=torch.int64)
        for place in range(r):
            path[place] = context // m ** (r - 1 - place) % m
        for begin in range(r, length, 256):  # steps whose uniform numbers are drawn at once
            shape = min(256, length - begin), replicas, 1
            uniform = torch.rand(shape, generator=generator, dtype=rows.dtype)
            for step, draw in enumerate(uniform, begin):
                path[step] = (rows[context] <= draw).sum(-1)
                context = (context * m + path[step]) % n
        return path[:length].T.contiguous()

    def lagged_covariance(
        self, f: ArrayLike, g: ArrayLike | None = None, *, length: float = math.inf
    ) -> Tensor:
        """Σ_{k>=1} (1 - k/L) Cov(f(w_0), g(w_k)), windows w_k that start k symbols later, k < L.

        With ḡ = E[g | context], φ_f the flow of f into contexts and Z the fundamental matrix,
        formula (ngram.5) of docs/mathematics/ngram.md, it is φ_f·Z ḡ, and φ_f·Z[(1 - 1/L) ḡ - (P -
        P^L) Z ḡ/L] at length L.

        Parameters
        ----------
        f, g
            Values of vector functionals on the windows of ``ngrams(k)``, shape (..., c, m^k), any
            k; g = f when left out.
        length
            L, the number of windows. The result has shape (..., c, c').
        """
        chain, f, g, length = self._aligned(f, g, length)
        return chain._after(f, g, length)

    def long_run_covariance(
        self, f: ArrayLike, g: ArrayLike | None = None, *, length: float = math.inf
    ) -> Tensor:
        """Σ_k (1 - abs(k)/L) Cov(f(w_0), g(w_k)) over -L < k < L: L times the covariance of means.

        At infinity it is the covariance of the central limit theorem. Parameters and shapes as for
        :meth:`lagged_covariance`.
        """
        chain, f, g, length = self._aligned(f, g, length)
        same = (f * chain._edges.flatten()) @ g.mT  # both are centered
        return same + chain._after(f, g, length) + chain._after(g, f, length).mT

    def __repr__(self) -> str:
        return (
            f"MarkovChain(alphabet={self.alphabet}, order={self.order}, "
            f"relaxation_time={self.relaxation_time:.4g})"
        )

    @property
    def _successors(self) -> Tensor:
        """Context after each (context, next symbol), shape (m^r, m)."""
        edges = torch.arange(self.contexts * self.alphabet) % self.contexts
        return edges.reshape(self.contexts, self.alphabet)

    @functools.cached_property
    def _edges(self) -> Tensor:
        """Probability of (context, next symbol), shape (m^r, m)."""
        return self.stationary.flatten().unsqueeze(-1) * self.rows

    @functools.cached_property
    def _fundamental(self) -> Tensor:
        """Z = (I - P + 1π)^{-1}, shape (m^r, m^r)."""
        return _solved(self._eye - self.matrix + self.stationary.flatten(), self._eye)

    @property
    def _eye(self) -> Tensor:
        return torch.eye(self.contexts, dtype=self.transition.dtype)

    def _after(self, f: Tensor, g: Tensor, length: float) -> Tensor:
        """:meth:`lagged_covariance` for centered functionals of windows of order + 1 symbols."""
        flow = f.new_zeros(*f.shape[:-1], self.contexts)
        flow.index_add_(-1, self._successors.flatten(), f * self._edges.flatten())
        # E[g | context], (..., c', contexts)
        ahead = (g.unflatten(-1, (self.contexts, self.alphabet)) * self.rows).sum(-1)
        solved: Tensor = ahead @ self._fundamental.mT
        if not math.isinf(length):
            step = self.matrix - torch.linalg.matrix_power(self.matrix, int(length))
            solved = solved - (solved + solved @ step.mT @ self._fundamental.mT) / length
        return flow @ solved.mT

    def _functional(self, name: str, value: Any) -> Tensor:
        result = validation.tensor(name, value, like=self.transition)
        windows = round(math.log(max(result.shape[-1], 1), self.alphabet)) if result.dim() else 0
        if result.dim() < 2 or windows < 1 or self.alphabet**windows != result.shape[-1]:
            allowed = f"shape (..., c, {self.alphabet}^k): c values on every window of k symbols"
            given = f"shape {validation.shape_text(result.shape)}"
            remedy = "Evaluate it on the rows of ngrams(k).atoms."
            raise InvalidArgumentError(name, given, allowed, remedy)
        return result

    def _aligned(
        self, first: ArrayLike, second: ArrayLike | None, length: float
    ) -> tuple[MarkovChain, Tensor, Tensor, float]:
        """The chain at an order that sees both windows, the functionals centered on them, and L."""
        length = validation.length("length", length, allow_infinity=True)
        f = self._functional("f", first)
        g = f if second is None else self._functional("g", second)
        widest = max(f.shape[-1], g.shape[-1])
        chain = self._lifted(max(self.order, round(math.log(widest, self.alphabet)) - 1))
        full = chain._edges.flatten()

        def spread(value: Tensor) -> Tensor:
            # the symbols beyond its window do not matter
            wide = value.repeat_interleave(full.shape[0] // value.shape[-1], -1)
            return wide - (wide @ full).unsqueeze(-1)

        return chain, spread(f), spread(g), length


def _check_contexts(name: str, alphabet: int, order: int) -> None:
    """Refuse a lifted chain that is too large, before anything of its size is made."""
    if order * math.log(alphabet) > math.log(MOST_CONTEXTS) + 1e-9:
        given = f"{alphabet} symbols at order {order}, {alphabet}^{order} contexts"
        raise InvalidArgumentError(
            name, given, f"at most {MOST_CONTEXTS} contexts", "Lower the order or the alphabet."
        )


def _check_windows(alphabet: int, k: int, entries: int) -> None:
    """Refuse windows of k symbols, ``entries`` numbers for each, that do not fit into memory."""
    if k * math.log(alphabet) + math.log(entries) > math.log(MOST_ENTRIES):
        given = f"{k}, {alphabet}^{k} windows of {entries} numbers each"
        raise InvalidArgumentError(
            "k", given, f"at most {MOST_ENTRIES} numbers in all", "Take shorter windows."
        )


def _solved(matrix: Tensor, right: Tensor) -> Tensor:
    """matrix^{-1} right, for matrices that are singular only where the chain falls apart."""
    found: Tensor
    found, info = torch.linalg.solve_ex(matrix, right)
    if bool(info) or not bool(torch.isfinite(found).all()):
        raise _falls_apart()
    return found


def _falls_apart() -> InvalidArgumentError:
    allowed = "probabilities that let every class be left within 1e15 steps"
    remedy = "Draw it with a larger concentration, or mix in a little of the uniform law."
    return InvalidArgumentError(
        "transition", "a chain that is reducible up to rounding", allowed, remedy
    )
