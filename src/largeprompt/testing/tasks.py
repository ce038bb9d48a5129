"""What every task promises, as tests that a new task inherits."""

import math
from collections.abc import Callable
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
from largeprompt.training.dynamics.prompts import prompt_gradients
from largeprompt.training.risk.average import SobolAverage
from largeprompt.training.tasks.task import Task

KINDS: tuple[type[Attention], ...] = (SoftmaxAttention, LinearAttention)
FALSE_ALARM = 1e-9  # of each statistical comparison


class TaskContract:
    """Inherit, set ``task``, and pytest checks the exact risk against drawn prompts, its symmetries
    and its derivatives.

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
        generator = torch.Generator().manual_seed(seed)
        dim, out = self.task.token_dim, self.task.target_dim
        U = torch.randn(*runs, dim, dim, generator=generator, dtype=torch.float64) / math.sqrt(dim)
        return kind(
            self.size * U, torch.randn(*runs, out, dim, generator=generator, dtype=torch.float64)
        )

    def risk(self, layer: Attention, length: float) -> Tensor:
        """Exact risk with the contract's average."""
        return self.task.risk(layer, length, average=self.average)

    def losses(self, layer: Attention, length: int, seed: int) -> Tensor:
        """Losses ½‖read-out - answer‖² of drawn prompts."""
        batch = max(1000, self.draws // length)
        tokens, query, answer = self.task.sample(batch, length, torch.Generator().manual_seed(seed))
        return (layer(Empirical(tokens), query) - answer).square().sum(-1) / 2

    def test_risk_is_that_of_drawn_prompts(self) -> None:
        bound = float(norm.isf(FALSE_ALARM / 2))
        for seed, length in enumerate(self.lengths):
            for kind in KINDS:
                layer = self.layer(kind, seed)
                losses, exact = (
                    self.losses(layer, length, seed),
                    self.task.risk_estimate(layer, length, average=self.average),
                )
                error = math.hypot(
                    float(losses.std()) / math.sqrt(len(losses)), exact.standard_error
                )
                drawn = float(losses.mean())
                assert abs(drawn - exact.value) <= bound * error, (
                    f"{kind.__name__}, length {length}: drawn {drawn}, exact {exact}"
                )

    def test_risk_is_a_parabola_in_the_read_out(self) -> None:
        for kind in KINDS:
            layer = self.layer(kind)
            for length in (3, math.inf):
                risks = [
                    self.risk(kind(layer.U, factor * layer.V), length)
                    for factor in (-1.0, 0.0, 1.0, 2.0)
                ]
                bend = risks[2] - 2 * risks[1] + risks[0]
                assert_close(risks[3] - 2 * risks[2] + risks[1], bend, rtol=1e-9, atol=1e-12)
                assert float(bend) >= 0

    def test_reading_nothing_leaves_the_answer(self) -> None:
        """The risk of V = 0 is half the mean square of the answer, at every length and for both
        attentions.
        """
        silent = [
            self.risk(kind(self.layer(kind).U, 0 * self.layer(kind).V), n)
            for kind in KINDS
            for n in (1, 50, math.inf)
        ]
        for risk in silent:
            assert_close(risk, silent[0], rtol=self.tolerance, atol=0)
        _, _, answer = self.task.sample(100_000, 1, torch.Generator().manual_seed(0))
        assert_sample_mean(
            answer.square().sum(-1) / 2,
            silent[0],
            false_alarm=FALSE_ALARM,
            slack=self.tolerance * float(silent[0]),
        )

    def test_no_risk_is_below_the_noise(self) -> None:
        for kind in KINDS:
            for length in (1, 7, 10**6, math.inf):
                assert (
                    float(self.risk(self.layer(kind), length)) >= self.task.answer_noise / 2 - 1e-12
                )

    def test_long_prompts_tend_to_the_infinite_one(self) -> None:
        for kind in KINDS:
            assert_close(
                self.risk(self.layer(kind), 10**15),
                self.risk(self.layer(kind), math.inf),
                rtol=1e-6,
                atol=1e-9,
            )

    def test_runs_lead(self) -> None:
        for kind in KINDS:
            several = self.layer(kind, 1, 3)
            risks = self.risk(several, 5)
            assert risks.shape == (3,)
            for i in range(3):
                assert_close(
                    risks[i], self.risk(kind(several.U[i], several.V[i]), 5), rtol=1e-10, atol=1e-13
                )

    def test_gradient_is_that_of_finite_differences(self) -> None:
        for kind in KINDS:
            layer = self.layer(kind, 2)
            for length in (4, 1000):
                U, V = layer.U.clone().requires_grad_(), layer.V.clone().requires_grad_()
                slopes = torch.autograd.grad(self.risk(kind(U, V), length), (U, V))
                generator = torch.Generator().manual_seed(3)
                ways = [
                    torch.randn(slope.shape, generator=generator, dtype=torch.float64)
                    for slope in slopes
                ]
                step = 1e-4
                ends = [
                    self.risk(kind(layer.U + h * ways[0], layer.V + h * ways[1]), length)
                    for h in (-step, step)
                ]
                expected = sum((slope * way).sum() for slope, way in zip(slopes, ways, strict=True))
                assert_close(
                    (ends[1] - ends[0]) / (2 * step),
                    torch.as_tensor(expected),
                    rtol=1e-4,
                    atol=1e-6,
                )

    def test_gradients_of_drawn_prompts_have_that_mean(self) -> None:
        """What stochastic gradient descent follows is on average the gradient of the risk; long
        prompts drawn in parts included.
        """
        length, batches = 5, 400
        for kind in KINDS:
            layer = self.layer(kind, 4)
            U, V = layer.U.clone().requires_grad_(), layer.V.clone().requires_grad_()
            slopes = torch.autograd.grad(
                self.task.risk(kind(U, V), length, average=SobolAverage(1024)), (U, V)
            )
            generator = torch.Generator().manual_seed(5)
            found = [
                prompt_gradients(self.task, layer, length, 100, generator)[1:]
                for _ in range(batches)
            ]
            rows = torch.stack([torch.cat([one.flatten() for one in pair]) for pair in found])
            expected = torch.cat([slope.flatten() for slope in slopes])
            # Sobol points
            assert_sample_mean(
                rows, expected, false_alarm=FALSE_ALARM, slack=5e-3 * float(expected.abs().max())
            )

    def test_parts_make_the_same_prompts(self) -> None:
        contexts, query, answer = self.task.draw_contexts(4000, torch.Generator().manual_seed(6))
        parts = list(self.task.draw_parts(contexts, 10, 4, torch.Generator().manual_seed(7)))
        assert [part.shape[1] for part in parts] == [4, 4, 2]
        layer = self.layer(SoftmaxAttention, 5)
        losses = (layer(Empirical(torch.cat(parts, 1)), query) - answer).square().sum(-1) / 2
        exact = self.task.risk_estimate(layer, 10, average=self.average)
        slack = float(norm.isf(FALSE_ALARM / 2)) * math.hypot(
            float(losses.std()) / math.sqrt(4000), exact.standard_error
        )
        assert abs(float(losses.mean()) - exact.value) <= slack

    def test_descent_lowers_the_risk(self) -> None:
        for kind in KINDS:
            start = kind(self.layer(kind).U / 4, self.layer(kind).V / 4)
            path = gradient_descent(self.task, start, 20, 1e-2, 2, average=self.average)
            assert bool((path.risk[1:] < path.risk[:-1]).all())

    def test_prompts_are_those_of_the_generator(self) -> None:
        first, second = (self.task.sample(3, 4, torch.Generator().manual_seed(8)) for _ in range(2))
        dim, out = self.task.token_dim, self.task.target_dim
        assert [tuple(one.shape) for one in first] == [(3, 4, dim), (3, dim), (3, out)]
        assert all(
            bool((a == b).all()) and a.dtype == torch.float64
            for a, b in zip(first, second, strict=True)
        )

    def test_bad_input_is_refused(self) -> None:
        good, dim = self.layer(SoftmaxAttention), self.task.token_dim
        out, generator = self.task.target_dim, torch.Generator()
        wide = SoftmaxAttention(
            torch.eye(dim + 1, dtype=torch.float64), torch.ones(out, dim + 1, dtype=torch.float64)
        )
        tall = SoftmaxAttention(good.U, torch.ones(out + 1, dim, dtype=torch.float64))
        refused: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        refused += [
            (self.task.risk, (layer, 5))
            for layer in (wide, tall, None, self.layer(SoftmaxAttention, 0, 2, 2))
        ]
        refused += [(self.task.risk, (good, length)) for length in (0, -1, 2.5, 10**16, "long")]
        refused += [
            (self.task.sample, arguments)
            for arguments in ((0, 3, generator), (2, 0, generator), (2, 3, None))
        ]
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
