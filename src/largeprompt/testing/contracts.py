"""What every measure promises, as tests that a new law inherits."""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close

from largeprompt.errors import InvalidArgumentError, TiltDomainError
from largeprompt.measures import Measure
from largeprompt.testing.statistics import assert_sample_mean

FUNCTIONS = ("cgf", "tilted_mean", "tilted_covariance")
F = torch.float64


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class MeasureContract:
    """Inherit, set ``measure``, and pytest checks the law against its cgf and its own samples.

    A failure says in a sentence which promise the law breaks.

    Attributes
    ----------
    measure
        The law, without batch dimensions, float64.
    tilt_size
        Length of the tilts that are tried; twice that must lie in the domain.
    draws
        Number of tokens for the statistical tests (false alarms below 1e-9 each).
    far
        Size of a tilt so large that a careless exponential overflows; None when the domain is
        bounded.
    complex_tilts
        Whether the law knows its cgf at complex tilts, which make finite prompts exact.
    tolerance
        Relative tolerance between closed forms and autodiff.
    """

    measure: Measure
    tilt_size: float = 0.6
    draws: int = 200_000
    far: float | None = 1e4
    complex_tilts: bool = True
    tolerance: float = 1e-9

    @property
    def bare(self) -> bool:
        """Whether the law is no dataclass: its own three members check nothing."""
        return not dataclasses.is_dataclass(self.measure)

    def tilts(self, *shape: int, seed: int = 0) -> Tensor:
        """Random tilts of length ``tilt_size``, shape ``(*shape, d)``."""
        u = torch.randn(*shape, self.measure.dim, generator=_seeded(seed), dtype=F)
        return self.tilt_size * torch.nn.functional.normalize(u, dim=-1)

    def holds(self, condition: bool, promise: str) -> None:
        """Assert a promise, and say in a sentence which one was broken."""
        assert condition, f"{promise}; {self.measure!r} breaks this."

    def close(
        self,
        actual: Tensor,
        expected: Tensor,
        promise: str = "two routes to the same number must agree",
        tolerance: float | None = None,
    ) -> None:
        """Compare up to ``tolerance``, relative to the largest entry."""
        slack = tolerance or self.tolerance
        size = max(1.0, float(expected.detach().abs().max())) if expected.numel() else 1.0
        broken = f"{promise}; {self.measure!r} breaks this.\n"
        assert_close(actual, expected, rtol=slack, atol=slack * size, msg=lambda why: broken + why)

    def refuses(
        self,
        promise: str,
        kind: type[Exception],
        words: Sequence[str],
        function: Callable[..., Any],
        *given: Any,
    ) -> None:
        """Assert that a call raises, with a message that has these words."""
        try:
            function(*given)
        except kind as error:
            said = all(word in str(error) for word in words)
            self.holds(said, f"{promise}, in a message with the words {words}, not '{error}'")
        else:
            self.holds(False, promise)

    def test_cgf_vanishes_at_the_origin(self) -> None:
        zero = torch.zeros(self.measure.dim, dtype=F)
        promise = "cgf(0) must be 0, the logarithm of the total mass"
        self.close(self.measure.cgf(zero), zero[0], promise)

    def test_cgf_is_convex(self) -> None:
        a, b, cgf = self.tilts(50, seed=1), self.tilts(50, seed=2), self.measure.cgf
        below = bool((cgf((a + b) / 2) <= (cgf(a) + cgf(b)) / 2 + 1e-12).all())
        self.holds(below, "cgf must be convex: at the middle of two tilts at most their average")

    def test_tilted_mean_is_the_gradient(self) -> None:
        mu, u = self.measure, self.tilts(7)
        promise = "tilted_mean(u) must be the gradient of cgf at u"
        self.close(mu.tilted_mean(u), mu._mean_by_autodiff(u), promise)

    def test_tilted_covariance_is_the_hessian(self) -> None:
        mu, u = self.measure, self.tilts(7)
        found, hessian = mu.tilted_covariance(u), mu._covariance_by_autodiff(u)
        finite = bool(torch.isfinite(hessian).all())
        self.holds(finite, "the second derivative of cgf must be finite, by autograd too")
        self.close(found, hessian, "tilted_covariance(u) must be the Hessian of cgf at u")

    def test_tilted_covariance_is_symmetric_and_positive(self) -> None:
        found = self.measure.tilted_covariance(self.tilts(7))
        self.close(found, found.mT, "tilted_covariance(u) must be symmetric")
        smallest = float(torch.linalg.eigvalsh(found).min())
        promise = f"tilted_covariance(u) must have no negative eigenvalue ({smallest:.3g})"
        self.holds(smallest >= -1e-10 * float(found.abs().max()), promise)

    def test_moments_are_those_of_the_untilted_law(self) -> None:
        mu, zero = self.measure, torch.zeros(self.measure.dim, dtype=F)
        self.close(mu.mean, mu.tilted_mean(zero), "mean must be tilted_mean(0)")
        promise = "covariance must be tilted_covariance(0)"
        self.close(mu.covariance, mu.tilted_covariance(zero), promise)

    def test_tilt_shifts_the_cgf(self) -> None:
        u, v, mu = self.tilts(seed=3) / 2, self.tilts(5, seed=4) / 2, self.measure
        tilted = mu.tilt(u)
        shifted = mu.cgf(u + v) - mu.cgf(u)
        self.close(tilted.cgf(v), shifted, "tilt(u).cgf(v) must be cgf(u + v) - cgf(u)")
        for name in ("mean", "covariance"):
            expected = getattr(mu, f"tilted_{name}")(u)
            self.close(getattr(tilted, name), expected, f"tilt(u).{name} must be tilted_{name}(u)")
        promise = "tilt(u).tilted_mean(v) must be tilted_mean(u + v)"
        self.close(tilted.tilted_mean(v), mu.tilted_mean(u + v), promise)

    def test_tilts_compose(self) -> None:
        a, b, v = self.tilts(seed=5) / 3, self.tilts(seed=6) / 3, self.tilts(4, seed=7) / 3
        twice, once = self.measure.tilt(a).tilt(b), self.measure.tilt(a + b)
        for name in FUNCTIONS:
            promise = f"tilt(a).tilt(b) must be tilt(a + b): {name}"
            self.close(getattr(twice, name)(v), getattr(once, name)(v), promise)

    def test_batch_of_tilts_is_a_batch_of_measures(self) -> None:
        u, v = self.tilts(3, 2, seed=8) / 2, self.tilts(seed=9) / 2
        tilted = self.measure.tilt(u)
        promise = "tilt(u) for u of shape (3, 2, d) must have batch_shape (3, 2)"
        self.holds(tilted.batch_shape == (3, 2), promise)
        for (i, j), name in itertools.product(((0, 0), (2, 1)), ("cgf", "tilted_mean")):
            one = getattr(self.measure.tilt(u[i, j]), name)(v)
            promise = f"each member of a batch of tilts must be the tilt by its u: {name}"
            self.close(getattr(tilted, name)(v)[i, j], one, promise)

    def test_batch_of_tilts_equals_one_at_a_time(self) -> None:
        u = self.tilts(2, 3, seed=10)
        for name in FUNCTIONS:
            function = getattr(self.measure, name)
            found = function(u)
            self.holds(found.shape[:2] == (2, 3), f"{name}(u) must keep the leading shape of u")
            promise = f"{name} of a batch must be {name} one by one"
            self.close(found[1, 2], function(u[1, 2]), promise)
            self.holds(function(u[:0]).shape[:2] == (0, 3), f"{name} must accept an empty batch")

    def test_affine_image(self) -> None:
        mu, generator, promise = self.measure, _seeded(11), "map(A, b) must be the law of A x + b"
        A = torch.randn(2, mu.dim, generator=generator, dtype=F) / (2 * math.sqrt(mu.dim))
        b = torch.tensor([0.3, -1.0], dtype=F)
        v = torch.randn(5, 2, generator=generator, dtype=F).clamp(-1.5, 1.5) * self.tilt_size / 4
        image, u = mu.map(A, b), v @ A
        self.close(image.cgf(v), mu.cgf(u) + v @ b, f"{promise}: cgf")
        self.close(image.tilted_mean(v), mu.tilted_mean(u) @ A.mT + b, f"{promise}: tilted_mean")
        covariance = A @ mu.tilted_covariance(u) @ A.mT
        self.close(image.tilted_covariance(v), covariance, f"{promise}: tilted_covariance")
        turn = torch.tensor([[0.0, 1.0], [-2.0, 0.5]], dtype=F)
        twice = image.tilt(v).map(turn).mean
        self.close(twice, image.tilted_mean(v) @ turn.mT, f"{promise}: an image of a tilt of it")
        center = torch.tensor([0.1, 0.2], dtype=F)
        derived = Measure._tilted_norm_moment4(image, image._origin(), center)
        self.close(image.norm_moment4(center), derived, f"{promise}: norm_moment4")

    def test_fourth_norm_moment(self) -> None:
        center, u = self.tilts(3, seed=12) * 2, self.tilts(3, seed=13)
        promise = "norm_moment4(c) must be E‖x - c‖⁴, as the cumulants of cgf give it"
        expected = Measure._tilted_norm_moment4(self.measure, torch.zeros_like(center), center)
        self.close(self.measure.norm_moment4(center), expected, promise)
        found = self.measure.tilt(u).norm_moment4(center)
        expected = Measure._tilted_norm_moment4(self.measure, u, center)
        self.close(found, expected, f"{promise}, under the tilt")

    def test_gradients_flow_through_the_tilt(self) -> None:
        mu, u = self.measure, self.tilts(2, seed=14).requires_grad_()
        direction = self.tilts(2, seed=15)
        (first,) = torch.autograd.grad((mu.tilted_mean(u) * direction).sum(), u)
        expected = (mu.tilted_covariance(u).detach() @ direction.unsqueeze(-1)).squeeze(-1)
        promise = "the gradient of tilted_mean(u) in u must be tilted_covariance(u)"
        self.close(first, expected, promise)

        def trace(u: Tensor) -> Tensor:
            return mu.tilted_covariance(u).diagonal(dim1=-2, dim2=-1).sum(-1)

        (second,) = torch.autograd.grad(trace(u).sum() + 0 * u.sum(), u)
        step, at = 1e-4 * direction, u.detach()
        slope = (trace(at + step) - trace(at - step)) / 2e-4
        promise = "the gradient of tilted_covariance(u) in u must be its difference quotient"
        self.close((second * direction).sum(-1), slope, promise, 1e-5)

    def test_no_graph_is_kept_without_need(self) -> None:
        for name in FUNCTIONS:
            kept = getattr(self.measure, name)(self.tilts(2)).requires_grad
            promise = "must not require a gradient where neither u nor the law does"
            self.holds(not kept, f"{name}(u) {promise}")

    def test_far_tilts_do_not_overflow(self) -> None:
        u = self.tilts(5) * (1.0 if self.far is None else self.far / self.tilt_size)
        for name in FUNCTIONS:
            finite = bool(torch.isfinite(getattr(self.measure, name)(u)).all())
            said = "must be finite for tilts of size far, None where the domain is bounded"
            self.holds(finite, f"{name}(u) {said} (far = {self.far})")

    def test_bounded_domain_is_guarded(self) -> None:
        if self.far is not None:
            return
        u = torch.full((self.measure.dim,), 1e4, dtype=F)
        promise = "must raise TiltDomainError outside the domain of the cgf (a scalar law says it: "
        if self.bare:
            infinite = not bool(torch.isfinite(self.measure.cgf(u)).all())
            self.holds(infinite, "cgf(u) must not be finite outside its domain")
        for name in (*FUNCTIONS[self.bare :], "tilt"):
            said = f"{name}(u) {promise}domain = (low, high))"
            self.refuses(said, TiltDomainError, ["limit"], getattr(self.measure, name), u)

    def test_complex_cumulants_agree_on_the_real_axis(self) -> None:
        mu, u = self.measure, self.tilts(4, seed=21)
        w, name = u.to(torch.complex128), "complex_cumulants"
        if not self.complex_tilts:
            promise = f"{name}(w) must say that the cgf takes no complex tilts"
            self.refuses(promise, InvalidArgumentError, [name], mu.complex_cumulants, w)
            return
        for order in (0, 2, 4):
            value, *slopes = mu.complex_cumulants(w, order)
            zero = torch.zeros(4, dtype=F)
            promise = f"{name}(w, {order}) must be real for real w"
            self.close(self._turned(value).imag, zero, promise)
            self.close(value.real, mu.cgf(u), f"{name}(w, {order}) must begin with cgf(w)")
            if not order:
                self.holds(not slopes, f"{name}(w, 0) must be the cgf alone")
                continue
            first, second = slopes[0].real, slopes[1].real
            self.close(first, mu.tilted_mean(u), f"{name}(w) must go on with tilted_mean(w)")
            independent = second.dim() == 2
            second = torch.diag_embed(second) if independent else second
            promise = f"{name}(w) must go on with tilted_covariance(w)"
            self.close(second, mu.tilted_covariance(u), promise)
            if independent:
                promise = f"independent coordinates must give {order} derivatives each"
                self.holds(len(slopes) == order, promise)
                known = mu._directional_cumulants(torch.eye(mu.dim, dtype=F), u)
                promise = "derivatives of each coordinate must be its cumulants"
                for slope, cumulant in zip(slopes, known, strict=False):
                    self.close(slope.real, cumulant.mT, promise)

    def test_complex_cumulants_are_derivatives_off_the_axis(self) -> None:
        """By Cauchy's integral over a small circle, which knows functions that are not analytic."""
        if not self.complex_tilts:
            return
        u, v = self.tilts(4, seed=22), self.tilts(4, seed=23)
        step = u * torch.rand(u.shape, generator=_seeded(24), dtype=F)  # towards 0 and 2u alone
        circle = torch.exp(1j * math.pi / 8 * torch.arange(16, dtype=F))
        promise = "complex_cumulants(w) must be analytic: each entry the derivative of the last"
        for w, a in zip(torch.complex(u, v), step.to(torch.complex128), strict=True):
            value, *slopes = self.measure.complex_cumulants(w.unsqueeze(0), 4)
            around, *moved = self.measure.complex_cumulants(w + circle.unsqueeze(-1) / 8 * a, 4)
            slope = 8 * (self._turned(around - value) / circle).mean()
            self.close(torch.view_as_real(slope), torch.view_as_real(slopes[0][0] @ a), promise)
            for before, after in itertools.pairwise([*zip(slopes, moved, strict=True)]):
                slope = 8 * (before[1] / circle.reshape(-1, *(1,) * (before[1].dim() - 1))).mean(0)
                exact = after[0][0] @ a if after[0].dim() > before[0].dim() else after[0][0] * a
                self.close(torch.view_as_real(slope), torch.view_as_real(exact), promise)

    @staticmethod
    def _turned(value: Tensor) -> Tensor:
        """A logarithm with its imaginary part between -π and π."""
        turned = torch.remainder(value.imag + math.pi, 2 * math.pi) - math.pi
        return torch.complex(value.real, turned)

    def test_tilt_range_ends_where_the_cgf_does(self) -> None:
        mu, u = self.measure, self.tilts(seed=25)
        low, high = mu.tilt_range(u)
        inside = low < 0 < 1 < high or low == 0.0
        self.holds(inside, "tilt_range(u) must hold 0 and 1 where cgf(u) is finite")
        ends = f"tilt_range(u) = ({low:.6g}, {high:.6g})"
        for end in (low, high):
            within = 0.999 * end if math.isfinite(end) else math.copysign(10.0, end)
            finite = math.isfinite(float(mu.cgf(within * u)))
            self.holds(finite, f"cgf must be finite inside {ends}")
            if math.isfinite(end) and end != 0:
                with contextlib.suppress(TiltDomainError):
                    finite = math.isfinite(float(mu.cgf(1.001 * end * u)))
                    self.holds(not finite, f"cgf must be infinite beyond {ends}")

    def test_samples_have_the_moments(self) -> None:
        tokens, shape = self.measure.sample(self.draws, _seeded(16)), (self.draws, self.measure.dim)
        self.holds(tokens.shape == shape, "sample(n, generator) must have shape (n, d)")
        self.holds(tokens.dtype == F, "sample(n, generator) must have the dtype of the law")
        self._moments(tokens, self.measure, "sample()")

    def test_tilted_samples_have_the_tilted_moments(self) -> None:
        if type(self.measure).sample_tilted is Measure.sample_tilted:
            promise = "tilt(u).sample must name the method that is missing"
            draw = self.measure.tilt(self.tilts()).sample
            self.refuses(promise, InvalidArgumentError, ["sample_tilted"], draw, 3, _seeded(0))
            return
        u = self.tilts(2, seed=17)
        tokens = self.measure.tilt(u).sample(self.draws, _seeded(18))
        promise = "tilt(u).sample(n, generator) must have shape (*batch, n, d)"
        self.holds(tokens.shape == (2, self.draws, self.measure.dim), promise)
        for drawn, tilt in zip(tokens, u, strict=True):
            self._moments(drawn, self.measure.tilt(tilt), "tilt(u).sample()")

    def _moments(self, tokens: Tensor, law: Measure, name: str) -> None:
        centered, v = tokens - law.mean, self.tilts(3, seed=19) / 2
        for samples, expected, moment in (
            (tokens, law.mean, "mean"),
            (centered.unsqueeze(-1) * centered.unsqueeze(-2), law.covariance, "covariance"),
            (torch.exp(tokens @ v.mT), torch.exp(law.cgf(v)), "exponential moments e^{cgf(v)}"),
        ):
            known = bool(torch.isfinite(expected).all())
            self.holds(known, f"the {moment} of the law, from its cgf, must be finite")
            try:
                assert_sample_mean(samples, expected)
            except AssertionError as error:
                self.holds(False, f"{name} must have the {moment} of the law ({error})")

    def test_samples_repeat_with_the_seed(self) -> None:
        sample = self.measure.sample
        first, second = sample(5, _seeded(20)), sample(5, _seeded(20))
        alone = bool((first == second).all())
        self.holds(alone, "sample(n, generator) must draw from the generator alone")
        if not self.bare:
            seeded = bool((sample(5, 20) == first).all())
            self.holds(seeded, "sample(n, seed) must be that of the seeded generator")
            self.holds(sample(5).shape == first.shape, "sample(n) must draw n tokens")

    def test_float32_agrees(self) -> None:
        if self.bare:
            promise = "to(float32) must refuse a law that is no dataclass"
            convert = functools.partial(self.measure.to, torch.float32)
            self.refuses(promise, InvalidArgumentError, ["Build it anew"], convert)
            return
        single, u = self.measure.to(dtype=torch.float32), self.tilts(4)
        for name in FUNCTIONS:
            value, expected = getattr(single, name)(u.float()), getattr(self.measure, name)(u)
            promise = f"to(float32).{name}(u) must be {name}(u) in single precision"
            self.holds(value.dtype == torch.float32, promise)
            self.close(value.double(), expected, promise, 2e-4)
            promoted = getattr(self.measure, name)(u.float())
            self.holds(promoted.dtype == F, f"{name}(u) must promote a narrower u")
        promise = "to(float32).sample(n, generator) must be in single precision"
        self.holds(single.sample(3, _seeded(0)).dtype == torch.float32, promise)

    def test_bad_tilts_are_refused(self) -> None:
        zero = torch.zeros(self.measure.dim, dtype=F)
        other = torch.zeros(self.measure.dim + 1, dtype=F)
        bad = [zero + math.nan, zero + math.inf, other, zero.sum(), 1j * zero, "tilt"]
        for value, name in itertools.product(bad, (*FUNCTIONS[self.bare :], "tilt")):
            promise, words = f"{name}(u) must refuse u = {value!r}", ["u: got", "allowed"]
            self.refuses(promise, InvalidArgumentError, words, getattr(self.measure, name), value)

    def test_bad_sampling_is_refused(self) -> None:
        if self.bare:
            return
        for given in ((0, 0), (2.5, 0), (3, -1), (3, 0.0), (3, "seed")):
            promise = f"sample must refuse n, generator = {given!r}"
            self.refuses(promise, InvalidArgumentError, [], self.measure.sample, *given)

    def test_repr_is_one_line(self) -> None:
        text = repr(self.measure)
        one = "\n" not in text and f"dim={self.measure.dim}" in text
        self.holds(one, "repr must be one line and say the dimension: dim=d")
