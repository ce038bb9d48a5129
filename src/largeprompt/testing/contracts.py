"""What every measure promises, as tests that a new law inherits."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.testing import assert_close

from largeprompt.errors import InvalidArgumentError, TiltDomainError
from largeprompt.measures import Measure
from largeprompt.testing.statistics import assert_sample_mean


class MeasureContract:
    """Inherit, set ``measure``, and pytest checks the law against the definition of its cgf and against its own samples.

    Attributes
    ----------
    measure
        The law, without batch dimensions, float64.
    tilt_size
        Length of the tilts that are tried; twice that must lie in the domain.
    draws
        Number of tokens for the statistical tests (false alarms below 1e-9 each).
    far
        Size of a tilt so large that a careless exponential overflows; None when the domain is bounded.
    samples_tilts
        Whether the law can draw from its tilts.
    tolerance
        Relative tolerance between closed forms and autodiff.
    """

    measure: Measure
    tilt_size: float = 0.6
    draws: int = 200_000
    far: float | None = 1e4
    samples_tilts: bool = True
    tolerance: float = 1e-9

    def tilts(self, *shape: int, seed: int = 0) -> Tensor:
        """Random tilts of length ``tilt_size``, shape ``(*shape, d)``."""
        generator = torch.Generator().manual_seed(seed)
        u = torch.randn(*shape, self.measure.dim, generator=generator, dtype=torch.float64)
        return self.tilt_size * torch.nn.functional.normalize(u, dim=-1)

    def close(self, actual: Tensor, expected: Tensor) -> None:
        """Compare up to ``tolerance``, relative to the largest entry."""
        assert_close(actual, expected, rtol=self.tolerance, atol=self.tolerance * max(1.0, float(expected.abs().max())))

    def test_cgf_vanishes_at_the_origin(self) -> None:
        self.close(self.measure.cgf(torch.zeros(self.measure.dim, dtype=torch.float64)), torch.zeros((), dtype=torch.float64))

    def test_cgf_is_convex(self) -> None:
        a, b = self.tilts(50, seed=1), self.tilts(50, seed=2)
        middle = self.measure.cgf((a + b) / 2)
        assert bool((middle <= (self.measure.cgf(a) + self.measure.cgf(b)) / 2 + 1e-12).all())

    def test_tilted_mean_is_the_gradient(self) -> None:
        u = self.tilts(7)
        self.close(self.measure.tilted_mean(u), Measure.tilted_mean(self.measure, u))

    def test_tilted_covariance_is_the_hessian(self) -> None:
        u = self.tilts(7)
        self.close(self.measure.tilted_covariance(u), Measure.tilted_covariance(self.measure, u))

    def test_tilted_covariance_is_symmetric_and_positive(self) -> None:
        covariance = self.measure.tilted_covariance(self.tilts(7))
        self.close(covariance, covariance.mT)
        assert float(torch.linalg.eigvalsh(covariance).min()) >= -1e-10 * float(covariance.abs().max())

    def test_moments_are_those_of_the_untilted_law(self) -> None:
        origin = torch.zeros(self.measure.dim, dtype=torch.float64)
        self.close(self.measure.mean, self.measure.tilted_mean(origin))
        self.close(self.measure.covariance, self.measure.tilted_covariance(origin))

    def test_tilt_shifts_the_cgf(self) -> None:
        u, v = self.tilts(seed=3) / 2, self.tilts(5, seed=4) / 2
        tilted = self.measure.tilt(u)
        self.close(tilted.cgf(v), self.measure.cgf(u + v) - self.measure.cgf(u))
        self.close(tilted.mean, self.measure.tilted_mean(u))
        self.close(tilted.covariance, self.measure.tilted_covariance(u))
        self.close(tilted.tilted_mean(v), self.measure.tilted_mean(u + v))

    def test_tilts_compose(self) -> None:
        a, b, v = self.tilts(seed=5) / 3, self.tilts(seed=6) / 3, self.tilts(4, seed=7) / 3
        twice, once = self.measure.tilt(a).tilt(b), self.measure.tilt(a + b)
        self.close(twice.cgf(v), once.cgf(v))
        self.close(twice.tilted_mean(v), once.tilted_mean(v))
        self.close(twice.tilted_covariance(v), once.tilted_covariance(v))

    def test_batch_of_tilts_is_a_batch_of_measures(self) -> None:
        u, v = self.tilts(3, 2, seed=8) / 2, self.tilts(seed=9) / 2
        tilted = self.measure.tilt(u)
        assert tilted.batch_shape == (3, 2)
        for i, j in ((0, 0), (2, 1)):
            self.close(tilted.cgf(v)[i, j], self.measure.tilt(u[i, j]).cgf(v))
            self.close(tilted.tilted_mean(v)[i, j], self.measure.tilt(u[i, j]).tilted_mean(v))

    def test_batch_of_tilts_equals_one_at_a_time(self) -> None:
        u = self.tilts(2, 3, seed=10)
        for function in (self.measure.cgf, self.measure.tilted_mean, self.measure.tilted_covariance):
            batched = function(u)
            assert batched.shape[:2] == (2, 3)
            self.close(batched[1, 2], function(u[1, 2]))
            assert function(u[:0]).shape[:2] == (0, 3)

    def test_affine_image(self) -> None:
        d = self.measure.dim
        generator = torch.Generator().manual_seed(11)
        matrix = torch.randn(2, d, generator=generator, dtype=torch.float64) / (2 * math.sqrt(d))
        offset = torch.tensor([0.3, -1.0], dtype=torch.float64)
        v = self.tilt_size / 4 * torch.randn(5, 2, generator=generator, dtype=torch.float64).clamp(-1.5, 1.5)
        image = self.measure.map(matrix, offset)
        self.close(image.cgf(v), self.measure.cgf(v @ matrix) + v @ offset)
        self.close(image.tilted_mean(v), self.measure.tilted_mean(v @ matrix) @ matrix.mT + offset)
        self.close(image.tilted_covariance(v), matrix @ self.measure.tilted_covariance(v @ matrix) @ matrix.mT)
        turn = torch.tensor([[0.0, 1.0], [-2.0, 0.5]], dtype=torch.float64)
        self.close(image.tilt(v).map(turn).mean, image.tilted_mean(v) @ turn.mT)
        center = torch.tensor([0.1, 0.2], dtype=torch.float64)
        self.close(image.norm_moment4(center), Measure.norm_moment4(image, center))

    def test_fourth_norm_moment(self) -> None:
        center = self.tilts(3, seed=12) * 2
        self.close(
            self.measure.norm_moment4(center),
            Measure.tilted_norm_moment4(self.measure, torch.zeros_like(center), center),
        )
        u = self.tilts(3, seed=13)
        self.close(self.measure.tilt(u).norm_moment4(center), Measure.tilted_norm_moment4(self.measure, u, center))

    def test_gradients_flow_through_the_tilt(self) -> None:
        u = self.tilts(2, seed=14).requires_grad_()
        direction = self.tilts(2, seed=15)
        (first,) = torch.autograd.grad((self.measure.tilted_mean(u) * direction).sum(), u)
        self.close(first, (self.measure.tilted_covariance(u).detach() @ direction.unsqueeze(-1)).squeeze(-1))
        trace = self.measure.tilted_covariance(u).diagonal(dim1=-2, dim2=-1).sum() + 0 * u.sum()
        (second,) = torch.autograd.grad(trace, u)
        step = 1e-4 * direction
        ahead, behind = (self.measure.tilted_covariance(u.detach() + sign * step) for sign in (1, -1))
        slope = (ahead - behind).diagonal(dim1=-2, dim2=-1).sum(-1) / 2e-4
        assert_close((second * direction).sum(-1), slope, rtol=1e-5, atol=1e-6)

    def test_no_graph_is_kept_without_need(self) -> None:
        u = self.tilts(2)
        for value in (self.measure.cgf(u), self.measure.tilted_mean(u), self.measure.tilted_covariance(u)):
            assert not value.requires_grad

    def test_far_tilts_do_not_overflow(self) -> None:
        u = self.tilts(5) / self.tilt_size * (self.tilt_size if self.far is None else self.far)
        for value in (self.measure.cgf(u), self.measure.tilted_mean(u), self.measure.tilted_covariance(u)):
            assert bool(torch.isfinite(value).all())

    def test_bounded_domain_is_guarded(self) -> None:
        if self.far is not None:
            return
        u = torch.full((self.measure.dim,), 1e4, dtype=torch.float64)
        for function in (self.measure.cgf, self.measure.tilt, self.measure.tilted_mean, self.measure.tilted_covariance):
            try:
                function(u)
            except TiltDomainError as error:
                assert "limit" in str(error)
            else:
                raise AssertionError(f"{function} accepts a tilt outside the domain")

    def test_samples_have_the_moments(self) -> None:
        tokens = self.measure.sample(self.draws, torch.Generator().manual_seed(16))
        assert tokens.shape == (self.draws, self.measure.dim)
        assert tokens.dtype == torch.float64
        self._moments(tokens, self.measure)

    def test_tilted_samples_have_the_tilted_moments(self) -> None:
        if not self.samples_tilts:
            return
        u = self.tilts(2, seed=17)
        tokens = self.measure.tilt(u).sample(self.draws, torch.Generator().manual_seed(18))
        assert tokens.shape == (2, self.draws, self.measure.dim)
        for i in range(2):
            self._moments(tokens[i], self.measure.tilt(u[i]))

    def _moments(self, tokens: Tensor, law: Measure) -> None:
        assert_sample_mean(tokens, law.mean)
        centred = tokens - law.mean
        assert_sample_mean(centred.unsqueeze(-1) * centred.unsqueeze(-2), law.covariance)
        v = self.tilts(3, seed=19) / 2
        assert_sample_mean(torch.exp(tokens @ v.mT), torch.exp(law.cgf(v)))

    def test_samples_repeat_with_the_seed(self) -> None:
        first, second = (self.measure.sample(5, torch.Generator().manual_seed(20)) for _ in range(2))
        assert bool((first == second).all())

    def test_float32_agrees(self) -> None:
        single, u = self.measure.to(dtype=torch.float32), self.tilts(4)
        for name in ("cgf", "tilted_mean", "tilted_covariance"):
            value = getattr(single, name)(u.float())
            assert value.dtype == torch.float32
            assert_close(value.double(), getattr(self.measure, name)(u), rtol=2e-4, atol=2e-4)
        assert single.sample(3, torch.Generator().manual_seed(0)).dtype == torch.float32

    def test_bad_tilts_are_refused(self) -> None:
        d = self.measure.dim
        bad = [
            torch.full((d,), float("nan"), dtype=torch.float64),
            torch.full((d,), float("inf"), dtype=torch.float64),
            torch.zeros(d + 1, dtype=torch.float64),
            torch.zeros((), dtype=torch.float64),
            torch.zeros(d, dtype=torch.float32),
            torch.zeros(d, dtype=torch.complex128),
            "tilt",
        ]
        for value in bad:
            for function in (
                self.measure.cgf,
                self.measure.tilted_mean,
                self.measure.tilted_covariance,
                self.measure.tilt,
            ):
                try:
                    function(value)  # type: ignore[arg-type]
                except InvalidArgumentError as error:
                    assert "u: got" in str(error)
                    assert "allowed" in str(error)
                else:
                    raise AssertionError(f"{function} accepts u = {value!r}")

    def test_bad_sampling_is_refused(self) -> None:
        for n, generator in ((0, torch.Generator()), (2.5, torch.Generator()), (3, None), (3, 0)):
            try:
                self.measure.sample(n, generator)  # type: ignore[arg-type]
            except InvalidArgumentError:
                continue
            raise AssertionError(f"sample({n!r}, {generator!r}) is accepted")

    def test_repr_is_one_line(self) -> None:
        text = repr(self.measure)
        assert "\n" not in text
        assert f"dim={self.measure.dim}" in text
