"""Laws as mathematicians write them."""

import pytest
import torch
from matplotlib.mathtext import MathTextParser

import largeprompt as lp
from largeprompt.display.notation import latex, matrix, number, plain, vector

F = torch.float64
EYE = torch.eye(2, dtype=F)
LAWS = {
    "N((1, 0.5), [[1, 0.5], [0.5, 1]]) on R²": lp.Gaussian([1.0, 0.5], [[1.0, 0.5], [0.5, 1.0]]),
    "N(0, 2 I) on R⁴": lp.Gaussian([0.0] * 4, 2 * torch.eye(4, dtype=F)),
    "N(1, 1·10⁻⁵) on R": lp.Gaussian([1.0], [[1e-5]]),
    "N(m, Γ) on R², batch of 3": lp.Gaussian(torch.zeros(3, 2), torch.eye(2)),
    "N(m, Γ) on R¹²": lp.Gaussian(torch.arange(12.0), torch.diag(torch.arange(1.0, 13.0))),
    "0.5 N(-1, 0.01) + 0.5 N(1, 0.01) on R": lp.GaussianMixture(
        [0.5, 0.5], [[-1.0], [1.0]], [[[0.01]], [[0.01]]]
    ),
    "Σ_{k≤4} π_k N(m_k, Γ_k) on R²": lp.GaussianMixture(
        [0.25] * 4, [[0.0, 1.0]] * 4, EYE.expand(4, 2, 2)
    ),
    "0.25 δ_0 + 0.75 δ_1 on R": lp.Discrete([[0.0], [1.0]], [0.25, 0.75]),
    "1/7 Σ_{l≤7} δ_z_l on R²": lp.Empirical(torch.ones(7, 2)),
    "Σ_{l≤2} ω_l δ_z_l on R²": lp.Empirical(EYE, [0.5, 0.5]),
    "Unif(1.732 S²) on R³": lp.Sphere(3),
    "Unif(±1)^⊗4 on R⁴": lp.Rademacher(4),
    "Unif[-√3, √3]^⊗2 on R²": lp.Uniform(2),
    "Laplace(0, 1/√2) on R": lp.Laplace(1),
    "(0.7746 t_5)^⊗2 on R²": lp.StudentT(2, df=5.0),
    "SkewNormal(0.5)^⊗2 on R²": lp.scalar.SkewNormal(2, skew=0.5),
    "Unif(±1) ⊗ Laplace(0, 1/√2) on R²": lp.Product(
        [lp.scalar.RademacherLaw(), lp.scalar.LaplaceLaw()]
    ),
    "⊗_{i≤5} μ_i on R⁵": lp.Product([lp.scalar.UniformLaw()] * 5),
    "Unif(1.732 S²) tilted by (1, 0, 0) on R³": lp.Sphere(3).tilt([1.0, 0.0, 0.0]),
    "law of [[1, 1]] x + 3, x ~ Unif(±1)^⊗2, on R": lp.Rademacher(2).map([[1.0, 1.0]], [3.0]),
}


@pytest.mark.parametrize("written", LAWS)
def test_laws_print_as_formulas_and_show_as_latex(written):
    law = LAWS[written]
    assert str(law) == written
    assert repr(law).startswith(f"{type(law).__name__}(dim={law.dim}")
    formula = law._repr_latex_()
    assert formula[0] == formula[-1] == "$"
    assert formula.isascii()  # every symbol has its macro
    if "pmatrix" not in formula:  # which matplotlib does not know
        MathTextParser("path").parse(formula)


def test_latex_of_a_matrix():
    expected = r"$\mathcal{N}((1,\ 0.5),\ \begin{pmatrix}1&0.5\\0.5&1\end{pmatrix})\ \mathrm{on}\ \mathbb{R}^{2}$"
    assert LAWS["N((1, 0.5), [[1, 0.5], [0.5, 1]]) on R²"]._repr_latex_() == expected


def test_a_law_of_ones_own_is_called_by_its_name():
    class Exponential(lp.Measure):
        dim = 2

        def cgf(self, u):
            return -torch.log1p(-u).sum(-1)

        def sample(self, n, generator):
            return -torch.log1p(-torch.rand(n, 2, generator=generator, dtype=F))

    assert str(Exponential()) == "Exponential on R²"
    assert Exponential()._repr_latex_() == r"$\mathrm{Exponential}\ \mathrm{on}\ \mathbb{R}^{2}$"


def test_numbers_vectors_and_matrices():
    assert [number(x) for x in (0.5, 1e20, -1e-5, float("inf"))] == [
        "0.5",
        "1·10^{20}",
        "-1·10^{-5}",
        "∞",
    ]
    assert [vector(x, "m") for x in ([0.0, 0.0], [2.0], [1.0, 2.0], [1.0] * 4, [[1.0]])] == [
        "0",
        "2",
        "(1, 2)",
        "m",
        "m",
    ]
    assert [matrix(x, "A") for x in (EYE, 3 * EYE, 0 * EYE, [[5.0]], torch.ones(1, 4))] == [
        "I",
        "3 I",
        "0",
        "5",
        "A",
    ]
    assert plain("x_{k}^{-2}") == "x_k⁻²"
    assert latex("√3 ± ∞") == r"$\sqrt{3}\ \pm \ \infty $"
