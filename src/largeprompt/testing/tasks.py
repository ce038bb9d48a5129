"""What every task promises, as tests that a new task inherits."""

import math
from typing import Any

import torch
from scipy.stats import norm
from torch import Tensor
from torch.testing import assert_close

from largeprompt.attention import Attention, LinearAttention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Empirical
from largeprompt.testing.statistics import assert_sample_mean
from largeprompt.training.dynamics.descent import gradient_descent
from largeprompt.training.risk.average import SobolAverage
from largeprompt.training.tasks.task import Task

KINDS: tuple[type[Attention], ...] = (SoftmaxAttention, LinearAttention)
FALSE_ALARM = 1e-9  # of each statistical comparison
F = torch.float64


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class TaskContract:
    """Inherit, set ``task``, and pytest checks the exact risk, its symmetries and derivatives.

    Attributes
    ----------
    task
        The task.
    size
        Size of the random U and V that are tried.
    lengths
        Prompt lengths at which prompts are drawn.
    draws
        Tokens drawn for each statistical comparison (false alarms below 1e-9 each).
    average
        Sobol points of the risk, where it uses any.
    tolerance
        Relative error that they may leave in the mean square of the answer.
    """

    task: Task
    size: float = 0.5
    lengths: tuple[int, ...] = (1, 2, 9)
    draws: int = 100_000
    average: SobolAverage = SobolAverage(256)
    tolerance: float = 1e-9

    def layer(self, kind: type[Attention], seed: int = 0, *runs: int) -> Attention:
        """A random layer of the task."""
        generator, dim, out = _seeded(seed), self.task.token_dim, self.task.target_dim
        U = torch.randn(*runs, dim, dim, generator=generator, dtype=F) / math.sqrt(dim)
        return kind(self.size * U, torch.randn(*runs, out, dim, generator=generator, dtype=F))

    def risk(self, layer: Attention, length: float) -> Tensor:
        """Exact risk with the contract's average."""
        return self.task.risk(layer, length, average=self.average)

    def slopes(self, layer: Attention, length: float, average: SobolAverage) -> tuple[Tensor, ...]:
        """Gradient of the exact risk in U and V."""
        U, V = (each.clone().requires_grad_() for each in (layer.U, layer.V))
        risk = self.task.risk(type(layer)(U, V), length, average=average)
        return torch.autograd.grad(risk, (U, V))

    def agrees(self, losses: Tensor, layer: Attention, length: int) -> None:
        """Assert that the losses of drawn prompts have the exact risk as their mean."""
        exact = self.task.risk_estimate(layer, length, average=self.average)
        error = math.hypot(float(losses.std()) / math.sqrt(len(losses)), exact.standard_error)
        drawn, bound = float(losses.mean()), float(norm.isf(FALSE_ALARM / 2))
        said = f"{type(layer).__name__}, length {length}: drawn {drawn}, exact {exact}"
        assert abs(drawn - exact) <= bound * error, said

    def test_risk_is_that_of_drawn_prompts(self) -> None:
        for seed, length in enumerate(self.lengths):
            for kind in KINDS:
                layer, batch = self.layer(kind, seed), max(1000, self.draws // length)
                tokens, query, answer = self.task.sample(batch, length, _seeded(seed))
                losses = (layer(Empirical(tokens), query) - answer).square().sum(-1) / 2
                self.agrees(losses, layer, length)

    def test_parts_make_the_same_prompts(self) -> None:
        contexts, query, answer = self.task.draw_contexts(4000, _seeded(6))
        parts = list(self.task.draw_parts(contexts, 10, 4, _seeded(7)))
        assert [part.shape[1] for part in parts] == [4, 4, 2]
        layer = self.layer(SoftmaxAttention, 5)
        losses = (layer(Empirical(torch.cat(parts, 1)), query) - answer).square().sum(-1) / 2
        self.agrees(losses, layer, 10)

    def test_risk_is_a_parabola_in_the_read_out(self) -> None:
        for kind in KINDS:
            layer = self.layer(kind)
            for length in (3, math.inf):
                a, b, c, d = (
                    self.risk(kind(layer.U, factor * layer.V), length)
                    for factor in (-1.0, 0.0, 1.0, 2.0)
                )
                assert_close(d - 2 * c + b, c - 2 * b + a, rtol=1e-9, atol=1e-12)
                assert float(c - 2 * b + a) >= 0

    def test_reading_nothing_leaves_the_answer(self) -> None:
        """The risk of V = 0 is half the mean square of the answer, at every length."""
        layers = [kind(self.layer(kind).U, 0 * self.layer(kind).V) for kind in KINDS]
        silent = [self.risk(layer, n) for layer in layers for n in (1, 50, math.inf)]
        for risk in silent:
            assert_close(risk, silent[0], rtol=self.tolerance, atol=0)
        answer = self.task.sample(100_000, 1, _seeded(0))[2]
        slack = self.tolerance * float(silent[0])
        half = answer.square().sum(-1) / 2
        assert_sample_mean(half, silent[0], false_alarm=FALSE_ALARM, slack=slack)

    def test_no_risk_is_below_the_noise(self) -> None:
        for kind in KINDS:
            for length in (1, 7, 10**6, math.inf):
                risk = float(self.risk(self.layer(kind), length))
                assert risk >= self.task.answer_noise / 2 - 1e-12

    def test_long_prompts_tend_to_the_infinite_one(self) -> None:
        for kind in KINDS:
            long, limit = (self.risk(self.layer(kind), n) for n in (10**15, math.inf))
            assert_close(long, limit, rtol=1e-6, atol=1e-9)

    def test_runs_lead(self) -> None:
        for kind in KINDS:
            several = self.layer(kind, 1, 3)
            risks = self.risk(several, 5)
            assert risks.shape == (3,)
            for risk, U, V in zip(risks, several.U, several.V, strict=True):
                assert_close(risk, self.risk(kind(U, V), 5), rtol=1e-10, atol=1e-13)

    def test_gradient_is_that_of_finite_differences(self) -> None:
        for kind in KINDS:
            layer, step = self.layer(kind, 2), 1e-4
            for length in (4, 1000):
                slopes, generator = self.slopes(layer, length, self.average), _seeded(3)
                u, v = (torch.randn(each.shape, generator=generator, dtype=F) for each in slopes)
                ahead, behind = (
                    self.risk(kind(layer.U + h * u, layer.V + h * v), length) for h in (step, -step)
                )
                expected = (slopes[0] * u).sum() + (slopes[1] * v).sum()
                assert_close((ahead - behind) / (2 * step), expected, rtol=1e-4, atol=1e-6)

    def test_gradients_of_drawn_prompts_have_that_mean(self) -> None:
        """What stochastic gradient descent follows is on average the gradient of the risk."""
        for kind in KINDS:
            layer, generator = self.layer(kind, 4), _seeded(5)
            slopes = self.slopes(layer, 5, SobolAverage(1024))
            rows = []
            for _ in range(400):
                drawn = self.task.prompt_gradients(layer, 5, 100, generator)[1:]
                rows.append(torch.cat([one.flatten() for one in drawn]))
            expected = torch.cat([slope.flatten() for slope in slopes])
            slack = 5e-3 * float(expected.abs().max())  # of Sobol points
            found = torch.stack(rows)
            assert_sample_mean(found, expected, false_alarm=FALSE_ALARM, slack=slack)

    def test_descent_lowers_the_risk(self) -> None:
        for kind in KINDS:
            start = kind(self.layer(kind).U / 4, self.layer(kind).V / 4)
            path = gradient_descent(self.task, start, 20, 1e-2, 2, average=self.average)
            assert bool((path.risk[1:] < path.risk[:-1]).all())

    def test_prompts_are_those_of_the_generator(self) -> None:
        first, second = (self.task.sample(3, 4, _seeded(8)) for _ in range(2))
        dim, out = self.task.token_dim, self.task.target_dim
        assert [tuple(one.shape) for one in first] == [(3, 4, dim), (3, dim), (3, out)]
        for a, b in zip(first, second, strict=True):
            assert torch.equal(a, b)
            assert a.dtype == F

    def test_bad_input_is_refused(self) -> None:
        task, good, generator = self.task, self.layer(SoftmaxAttention), torch.Generator()
        dim, out = task.token_dim, task.target_dim
        wide = SoftmaxAttention(torch.eye(dim + 1), torch.ones(out, dim + 1))
        tall = SoftmaxAttention(good.U, torch.ones(out + 1, dim))
        layers: list[Any] = [wide, tall, None, self.layer(SoftmaxAttention, 0, 2, 2)]
        lengths: list[Any] = [0, -1, 2.5, 10**16, "long"]
        samples: list[Any] = [(0, 3, generator), (2, 0, generator), (2, 3, None)]
        refused: list[Any] = [(task.risk, (layer, 5)) for layer in layers]
        refused += [(task.risk, (good, length)) for length in lengths]
        refused += [(task.sample, arguments) for arguments in samples]
        for function, arguments in refused:
            try:
                function(*arguments)
            except InvalidArgumentError as error:
                assert "allowed" in str(error)
            else:
                raise AssertionError(f"{function.__name__}{arguments!r} is accepted")

    def test_repr_is_one_line(self) -> None:
        text = repr(self.task)
        assert text.startswith(type(self.task).__name__)
        assert "\n" not in text
        assert " object at " not in text
