"""What every measure promises, as tests that a new law inherits."""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.testing import assert_close

from largeprompt.errors import InvalidArgumentError, TiltDomainError
from largeprompt.measures import Measure
from largeprompt.testing.statistics import assert_sample_mean

FUNCTIONS = ("cgf", "tilted_mean", "tilted_covariance")


class MeasureContract:
    """Inherit, set ``measure``, and pytest checks the law against the definition of its cgf and
    against its own samples.

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
        Whether the law knows its cgf at complex tilts, from which
        :func:`~largeprompt.finite_prompt` is exact for it.
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
        """Whether the law is no dataclass: its own three members check nothing, and what the base
        derives from them does.
        """
        return not dataclasses.is_dataclass(self.measure)

    def tilts(self, *shape: int, seed: int = 0) -> Tensor:
        """Random tilts of length ``tilt_size``, shape ``(*shape, d)``."""
        generator = torch.Generator().manual_seed(seed)
        u = torch.randn(*shape, self.measure.dim, generator=generator, dtype=torch.float64)
        return self.tilt_size * torch.nn.functional.normalize(u, dim=-1)

    def holds(self, condition: bool, promise: str) -> None:
        """Assert a promise, and say in a sentence which one was broken."""
        assert condition, f"{promise}; {self.measure!r} breaks this."

    def close(
        self,
        actual: Tensor,
        expected: Tensor,
        promise: str = "two routes to the same number must agree",
    ) -> None:
        """Compare up to ``tolerance``, relative to the largest entry."""
        slack = self.tolerance * max(1.0, float(expected.abs().max()))
        assert_close(
            actual,
            expected,
            rtol=self.tolerance,
            atol=slack,
            msg=functools.partial(self._broken, promise),
        )

    def refuses(
        self, call: Callable[[], object], kind: type[Exception], words: Sequence[str], promise: str
    ) -> None:
        """Assert that a call raises, with a message that has these words."""
        try:
            call()
        except kind as error:
            self.holds(
                all(word in str(error) for word in words),
                f"{promise}, in a message with the words {words}, not '{error}'",
            )
        else:
            self.holds(False, promise)

    def _broken(self, promise: str, detail: object) -> str:
        return f"{promise}; {self.measure!r} breaks this.\n{detail}"

    def test_cgf_vanishes_at_the_origin(self) -> None:
        zero = torch.zeros(self.measure.dim, dtype=torch.float64)
        self.close(
            self.measure.cgf(zero), zero[0], "cgf(0) must be 0, the logarithm of the total mass"
        )

    def test_cgf_is_convex(self) -> None:
        a, b = self.tilts(50, seed=1), self.tilts(50, seed=2)
        middle, ends = (
            self.measure.cgf((a + b) / 2),
            (self.measure.cgf(a) + self.measure.cgf(b)) / 2,
        )
        self.holds(
            bool((middle <= ends + 1e-12).all()),
            "cgf must be convex: at the middle of two tilts at most their average",
        )

    def test_tilted_mean_is_the_gradient(self) -> None:
        mu, u = self.measure, self.tilts(7)
        self.close(
            mu.tilted_mean(u),
            mu._mean_by_autodiff(u),
            "tilted_mean(u) must be the gradient of cgf at u",
        )

    def test_tilted_covariance_is_the_hessian(self) -> None:
        mu, u = self.measure, self.tilts(7)
        hessian = mu._covariance_by_autodiff(u)
        self.close(
            mu.tilted_covariance(u), hessian, "tilted_covariance(u) must be the Hessian of cgf at u"
        )

    def test_tilted_covariance_is_symmetric_and_positive(self) -> None:
        covariance = self.measure.tilted_covariance(self.tilts(7))
        self.close(covariance, covariance.mT, "tilted_covariance(u) must be symmetric")
        smallest = float(torch.linalg.eigvalsh(covariance).min())
        positive = smallest >= -1e-10 * float(covariance.abs().max())
        self.holds(
            positive, f"tilted_covariance(u) must have no negative eigenvalue ({smallest:.3g})"
        )

    def test_moments_are_those_of_the_untilted_law(self) -> None:
        origin = torch.zeros(self.measure.dim, dtype=torch.float64)
        self.close(
            self.measure.mean, self.measure.tilted_mean(origin), "mean must be tilted_mean(0)"
        )
        self.close(
            self.measure.covariance,
            self.measure.tilted_covariance(origin),
            "covariance must be tilted_covariance(0)",
        )

    def test_tilt_shifts_the_cgf(self) -> None:
        u, v = self.tilts(seed=3) / 2, self.tilts(5, seed=4) / 2
        tilted, mu = self.measure.tilt(u), self.measure
        self.close(
            tilted.cgf(v), mu.cgf(u + v) - mu.cgf(u), "tilt(u).cgf(v) must be cgf(u + v) - cgf(u)"
        )
        self.close(tilted.mean, mu.tilted_mean(u), "tilt(u).mean must be tilted_mean(u)")
        self.close(
            tilted.covariance,
            mu.tilted_covariance(u),
            "tilt(u).covariance must be tilted_covariance(u)",
        )
        self.close(
            tilted.tilted_mean(v),
            mu.tilted_mean(u + v),
            "tilt(u).tilted_mean(v) must be tilted_mean(u + v)",
        )

    def test_tilts_compose(self) -> None:
        a, b, v = self.tilts(seed=5) / 3, self.tilts(seed=6) / 3, self.tilts(4, seed=7) / 3
        twice, once = self.measure.tilt(a).tilt(b), self.measure.tilt(a + b)
        for name in FUNCTIONS:
            self.close(
                getattr(twice, name)(v),
                getattr(once, name)(v),
                f"tilt(a).tilt(b) must be tilt(a + b): {name}",
            )

    def test_batch_of_tilts_is_a_batch_of_measures(self) -> None:
        u, v = self.tilts(3, 2, seed=8) / 2, self.tilts(seed=9) / 2
        tilted = self.measure.tilt(u)
        self.holds(
            tilted.batch_shape == (3, 2),
            "tilt(u) for u of shape (3, 2, d) must have batch_shape (3, 2)",
        )
        for i, j in ((0, 0), (2, 1)):
            for name in ("cgf", "tilted_mean"):
                one, promise = (
                    getattr(self.measure.tilt(u[i, j]), name)(v),
                    "each member of a batch of tilts must be the tilt by its u",
                )
                self.close(getattr(tilted, name)(v)[i, j], one, f"{promise}: {name}")

    def test_batch_of_tilts_equals_one_at_a_time(self) -> None:
        u = self.tilts(2, 3, seed=10)
        for name in FUNCTIONS:
            function = getattr(self.measure, name)
            batched = function(u)
            self.holds(batched.shape[:2] == (2, 3), f"{name}(u) must keep the leading shape of u")
            self.close(
                batched[1, 2], function(u[1, 2]), f"{name} of a batch must be {name} one by one"
            )
            self.holds(function(u[:0]).shape[:2] == (0, 3), f"{name} must accept an empty batch")

    def test_affine_image(self) -> None:
        d = self.measure.dim
        generator = torch.Generator().manual_seed(11)
        matrix = torch.randn(2, d, generator=generator, dtype=torch.float64) / (2 * math.sqrt(d))
        offset = torch.tensor([0.3, -1.0], dtype=torch.float64)
        v = (
            self.tilt_size
            / 4
            * torch.randn(5, 2, generator=generator, dtype=torch.float64).clamp(-1.5, 1.5)
        )
        image, promise = self.measure.map(matrix, offset), "map(A, b) must be the law of A x + b"
        self.close(image.cgf(v), self.measure.cgf(v @ matrix) + v @ offset, f"{promise}: cgf")
        self.close(
            image.tilted_mean(v),
            self.measure.tilted_mean(v @ matrix) @ matrix.mT + offset,
            f"{promise}: tilted_mean",
        )
        covariance = matrix @ self.measure.tilted_covariance(v @ matrix) @ matrix.mT
        self.close(image.tilted_covariance(v), covariance, f"{promise}: tilted_covariance")
        turn = torch.tensor([[0.0, 1.0], [-2.0, 0.5]], dtype=torch.float64)
        self.close(
            image.tilt(v).map(turn).mean,
            image.tilted_mean(v) @ turn.mT,
            f"{promise}: an image of a tilt of an image",
        )
        center = torch.tensor([0.1, 0.2], dtype=torch.float64)
        derived = Measure._tilted_norm_moment4(image, image._origin(), center)
        self.close(image.norm_moment4(center), derived, f"{promise}: norm_moment4")

    def test_fourth_norm_moment(self) -> None:
        center, u = self.tilts(3, seed=12) * 2, self.tilts(3, seed=13)
        promise = "norm_moment4(c) must be E‖x - c‖⁴, as the cumulants of cgf give it"
        expected = Measure._tilted_norm_moment4(self.measure, torch.zeros_like(center), center)
        self.close(self.measure.norm_moment4(center), expected, promise)
        expected = Measure._tilted_norm_moment4(self.measure, u, center)
        self.close(
            self.measure.tilt(u).norm_moment4(center), expected, f"{promise}, under the tilt"
        )

    def test_gradients_flow_through_the_tilt(self) -> None:
        u = self.tilts(2, seed=14).requires_grad_()
        direction = self.tilts(2, seed=15)
        (first,) = torch.autograd.grad((self.measure.tilted_mean(u) * direction).sum(), u)
        expected = (self.measure.tilted_covariance(u).detach() @ direction.unsqueeze(-1)).squeeze(
            -1
        )
        self.close(
            first, expected, "the gradient of tilted_mean(u) in u must be tilted_covariance(u)"
        )
        trace = self.measure.tilted_covariance(u).diagonal(dim1=-2, dim2=-1).sum() + 0 * u.sum()
        (second,) = torch.autograd.grad(trace, u)
        step = 1e-4 * direction
        ahead, behind = (
            self.measure.tilted_covariance(u.detach() + sign * step) for sign in (1, -1)
        )
        slope = (ahead - behind).diagonal(dim1=-2, dim2=-1).sum(-1) / 2e-4
        broken = functools.partial(
            self._broken,
            "the gradient of tilted_covariance(u) in u must be its difference quotient",
        )
        assert_close((second * direction).sum(-1), slope, rtol=1e-5, atol=1e-6, msg=broken)

    def test_no_graph_is_kept_without_need(self) -> None:
        u = self.tilts(2)
        for name in FUNCTIONS:
            kept = getattr(self.measure, name)(u).requires_grad
            self.holds(
                not kept, f"{name}(u) must not require a gradient where neither u nor the law does"
            )

    def test_far_tilts_do_not_overflow(self) -> None:
        u = self.tilts(5) / self.tilt_size * (self.tilt_size if self.far is None else self.far)
        for name in FUNCTIONS:
            finite = bool(torch.isfinite(getattr(self.measure, name)(u)).all())
            self.holds(
                finite,
                f"{name}(u) must be finite for tilts of size {self.far} (far = None where the "
                "domain is bounded)",
            )

    def test_bounded_domain_is_guarded(self) -> None:
        if self.far is not None:
            return
        u = torch.full((self.measure.dim,), 1e4, dtype=torch.float64)
        promise = (
            "must raise TiltDomainError outside the domain of the cgf (a scalar law says it: "
            "domain = (low, high))"
        )
        if self.bare:
            self.holds(
                not bool(torch.isfinite(self.measure.cgf(u)).all()),
                "cgf(u) must not be finite outside its domain",
            )
        for name in (*FUNCTIONS[self.bare :], "tilt"):
            self.refuses(
                functools.partial(getattr(self.measure, name), u),
                TiltDomainError,
                ["limit"],
                f"{name}(u) {promise}",
            )

    def test_complex_cumulants_agree_on_the_real_axis(self) -> None:
        mu, u = self.measure, self.tilts(4, seed=21)
        w = u.to(torch.complex128)
        if not self.complex_tilts:
            promise = (
                "complex_cumulants(w) must say that the cgf takes no complex tilts "
                "(complex_tilts = True where it does)"
            )
            self.refuses(
                functools.partial(mu.complex_cumulants, w),
                InvalidArgumentError,
                ["complex_cumulants"],
                promise,
            )
            return
        for order in (0, 2, 4):
            value, *slopes = mu.complex_cumulants(w, order)
            promise = f"complex_cumulants(w, {order}) must be real for real w"
            self.close(self._turned(value).imag, torch.zeros(4, dtype=torch.float64), promise)
            self.close(
                value.real, mu.cgf(u), f"complex_cumulants(w, {order}) must begin with cgf(w)"
            )
            if not order:
                self.holds(not slopes, "complex_cumulants(w, 0) must be the cgf alone")
                continue
            self.close(
                slopes[0].real,
                mu.tilted_mean(u),
                "complex_cumulants(w) must go on with tilted_mean(w)",
            )
            self.close(
                self._matrix(slopes[1]).real,
                mu.tilted_covariance(u),
                "complex_cumulants(w) must go on with tilted_covariance(w)",
            )
            if slopes[1].dim() == 2:
                self.holds(
                    len(slopes) == order,
                    f"independent coordinates must give {order} derivatives each",
                )
                axes = torch.eye(mu.dim, dtype=torch.float64)
                for slope, known in zip(slopes, mu.directional_cumulants(axes, u), strict=False):
                    self.close(
                        slope.real, known.mT, "derivatives of each coordinate must be its cumulants"
                    )

    def test_complex_cumulants_are_derivatives_off_the_axis(self) -> None:
        """By Cauchy's integral over a small circle, which knows a function that is not analytic as
        well as a wrong derivative.
        """
        if not self.complex_tilts:
            return
        u, v = self.tilts(4, seed=22), self.tilts(4, seed=23)
        # towards 0 and 2u alone
        step = u * torch.rand(
            u.shape, generator=torch.Generator().manual_seed(24), dtype=torch.float64
        )
        circle = torch.polar(
            torch.ones(16, dtype=torch.float64), math.pi / 8 * torch.arange(16, dtype=torch.float64)
        )
        for w, a in zip(torch.complex(u, v), step.to(torch.complex128), strict=True):
            value, *slopes = self.measure.complex_cumulants(w.unsqueeze(0), 4)
            around, *moved = self.measure.complex_cumulants(w + circle.unsqueeze(-1) / 8 * a, 4)
            slope = 8 * (self._turned(around - value) / circle).mean()
            promise = (
                "complex_cumulants(w) must be analytic in w: each entry the derivative of "
                "the one before"
            )
            self.close(torch.view_as_real(slope), torch.view_as_real(slopes[0][0] @ a), promise)
            for before, after in itertools.pairwise([*zip(slopes, moved, strict=True)]):
                slope = 8 * (before[1] / circle.reshape(-1, *(1,) * (before[1].dim() - 1))).mean(0)
                exact = after[0][0] @ a if after[0].dim() > before[0].dim() else after[0][0] * a
                self.close(torch.view_as_real(slope), torch.view_as_real(exact), promise)

    @staticmethod
    def _turned(value: Tensor) -> Tensor:
        """A logarithm with its imaginary part between -π and π."""
        return torch.complex(
            value.real, torch.remainder(value.imag + math.pi, 2 * math.pi) - math.pi
        )

    @staticmethod
    def _matrix(second: Tensor) -> Tensor:
        """∇²Λ as matrices, from those or from the variances of independent coordinates."""
        return torch.diag_embed(second) if second.dim() == 2 else second

    def test_tilt_range_ends_where_the_cgf_does(self) -> None:
        mu, u = self.measure, self.tilts(seed=25)
        low, high = mu.tilt_range(u)
        self.holds(
            low < 0 < 1 < high or low == 0.0,
            "tilt_range(u) must hold 0 and 1 where cgf(u) is finite",
        )
        for end in (low, high):
            inside = 0.999 * end if math.isfinite(end) else math.copysign(10.0, end)
            finite = math.isfinite(float(mu.cgf(inside * u)))
            self.holds(finite, f"cgf must be finite inside tilt_range(u) = ({low:.6g}, {high:.6g})")
            if not math.isfinite(end) or end == 0:
                continue
            promise = f"cgf must be infinite beyond tilt_range(u) = ({low:.6g}, {high:.6g})"
            with contextlib.suppress(TiltDomainError):
                self.holds(not math.isfinite(float(mu.cgf(1.001 * end * u))), promise)

    def test_samples_have_the_moments(self) -> None:
        tokens = self.measure.sample(self.draws, torch.Generator().manual_seed(16))
        self.holds(
            tokens.shape == (self.draws, self.measure.dim),
            "sample(n, generator) must have shape (n, d)",
        )
        self.holds(
            tokens.dtype == torch.float64, "sample(n, generator) must have the dtype of the law"
        )
        self._moments(tokens, self.measure, "sample()")

    def test_tilted_samples_have_the_tilted_moments(self) -> None:
        if type(self.measure).sample_tilted is Measure.sample_tilted:
            call = functools.partial(self.measure.tilt(self.tilts()).sample, 3, torch.Generator())
            self.refuses(
                call,
                InvalidArgumentError,
                ["sample_tilted"],
                "tilt(u).sample must name the method that is missing",
            )
            return
        u = self.tilts(2, seed=17)
        tokens = self.measure.tilt(u).sample(self.draws, torch.Generator().manual_seed(18))
        self.holds(
            tokens.shape == (2, self.draws, self.measure.dim),
            "tilt(u).sample(n, generator) must have shape (*batch, n, d)",
        )
        for drawn, tilt in zip(tokens, u, strict=True):
            self._moments(drawn, self.measure.tilt(tilt), "tilt(u).sample()")

    def _moments(self, tokens: Tensor, law: Measure, name: str) -> None:
        centred, v = tokens - law.mean, self.tilts(3, seed=19) / 2
        for samples, expected, moment in (
            (tokens, law.mean, "mean"),
            (centred.unsqueeze(-1) * centred.unsqueeze(-2), law.covariance, "covariance"),
            (torch.exp(tokens @ v.mT), torch.exp(law.cgf(v)), "exponential moments e^{cgf(v)}"),
        ):
            try:
                assert_sample_mean(samples, expected)
            except AssertionError as error:
                raise AssertionError(
                    self._broken(f"{name} must have the {moment} of the law", error)
                ) from None

    def test_samples_repeat_with_the_seed(self) -> None:
        first, second = (
            self.measure.sample(5, torch.Generator().manual_seed(20)) for _ in range(2)
        )
        self.holds(
            bool((first == second).all()), "sample(n, generator) must draw from the generator alone"
        )
        if not self.bare:
            self.holds(
                bool((self.measure.sample(5, 20) == first).all()),
                "sample(n, seed) must be that of the seeded generator",
            )
            self.holds(self.measure.sample(5).shape == first.shape, "sample(n) must draw n tokens")

    def test_float32_agrees(self) -> None:
        if self.bare:
            call = functools.partial(self.measure.to, torch.float32)
            self.refuses(
                call,
                InvalidArgumentError,
                ["Build it anew"],
                "to(float32) must refuse a law that is no dataclass",
            )
            return
        single, u = self.measure.to(dtype=torch.float32), self.tilts(4)
        for name in FUNCTIONS:
            value, promise = (
                getattr(single, name)(u.float()),
                f"to(float32).{name}(u) must be {name}(u) in single precision",
            )
            self.holds(value.dtype == torch.float32, promise)
            expected, message = (
                getattr(self.measure, name)(u),
                functools.partial(self._broken, promise),
            )
            assert_close(value.double(), expected, rtol=2e-4, atol=2e-4, msg=message)
        drawn = single.sample(3, torch.Generator().manual_seed(0))
        self.holds(
            drawn.dtype == torch.float32,
            "to(float32).sample(n, generator) must be in single precision",
        )

    def test_bad_tilts_are_refused(self) -> None:
        zero = torch.zeros(self.measure.dim, dtype=torch.float64)
        other = torch.zeros(self.measure.dim + 1, dtype=torch.float64)
        bad = [
            zero + math.nan,
            zero + math.inf,
            other,
            zero.sum(),
            zero.to(torch.float32),
            zero.to(torch.complex128),
            "tilt",
        ]
        for value, name in itertools.product(bad, (*FUNCTIONS[self.bare :], "tilt")):
            call = functools.partial(getattr(self.measure, name), value)
            self.refuses(
                call,
                InvalidArgumentError,
                ["u: got", "allowed"],
                f"{name}(u) must refuse u = {value!r}",
            )

    def test_bad_sampling_is_refused(self) -> None:
        if self.bare:
            return
        for n, generator in (
            (0, torch.Generator()),
            (2.5, torch.Generator()),
            (3, -1),
            (3, 0.0),
            (3, "seed"),
        ):
            call = functools.partial(self.measure.sample, n, generator)  # type: ignore[arg-type]
            self.refuses(
                call,
                InvalidArgumentError,
                [],
                f"sample must refuse n = {n!r}, generator = {generator!r}",
            )

    def test_repr_is_one_line(self) -> None:
        text = repr(self.measure)
        self.holds(
            "\n" not in text and f"dim={self.measure.dim}" in text,
            "repr must be one line and say the dimension: dim=d",
        )
