"""The mean square of a softmax read-out of features: against drawn prompts, and its gradient
against autograd.
"""

import math

import pytest
import torch

from largeprompt.training.risk.features import _value, mean_squares

F = torch.float64


def setting(seed, queries, atoms, outputs):
    """Scores, probabilities, features and what is added for each token."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((queries, atoms), (queries, atoms, outputs), (queries, atoms))
    scores, features, extra = (
        torch.randn(*shape, generator=generator, dtype=F) for shape in shapes
    )
    weights = torch.rand(atoms, generator=generator, dtype=F) + 0.05
    return scores, weights / weights.sum(), features, extra.square()


def test_drawn_prompts():
    """Within 6 standard errors: two-sided 2e-9."""
    scores, p, features, extra = setting(5, 1, 5, 3)
    square = mean_squares(scores, p, features, extra, 12)
    index = torch.multinomial(
        p.expand(20_000, -1), 12, replacement=True, generator=torch.Generator().manual_seed(0)
    )
    weights = torch.softmax(scores[0, index], -1)
    read = (weights.unsqueeze(-1) * features[0, index]).sum(1)
    drawn = read.square().sum(-1) + (weights.square() * extra[0, index]).sum(-1)
    assert abs(float(drawn.mean() - square)) < 6 * float(drawn.std()) / math.sqrt(len(drawn))


@pytest.mark.parametrize("length", [2, 3, 40, 10**12])
def test_gradients_by_formula_are_those_of_autograd(length):
    """Through every node; 600 scores, more than are read at once; and second derivatives."""
    scores, p, features, extra = setting(2, 100, 6, 2)
    inputs = [part.requires_grad_() for part in (scores, features, extra)]
    plain, quick = (
        function(scores, p, features, extra, length) for function in (_value, mean_squares)
    )
    torch.testing.assert_close(quick, plain, rtol=1e-12, atol=1e-14)
    share = torch.rand(100, generator=torch.Generator().manual_seed(3), dtype=F)
    for one, other in zip(
        *(
            torch.autograd.grad(value @ share, inputs, create_graph=True)
            for value in (plain, quick)
        ),
        strict=True,
    ):
        torch.testing.assert_close(other, one, rtol=1e-11, atol=1e-13)
        seconds = [
            torch.autograd.grad(slope.square().sum(), scores, retain_graph=True)[0]
            for slope in (one, other)
        ]
        # by differences of gradients
        torch.testing.assert_close(*seconds, rtol=1e-6, atol=1e-8)


def test_gradient_is_that_of_the_number():
    scores, p, features, extra = setting(7, 2, 4, 1)

    def square(theta):
        return mean_squares(
            theta[0] * scores, p, theta[1] * features - 1, theta[1] ** 2 * extra, 9
        ).sum()

    assert torch.autograd.gradcheck(
        square, torch.tensor([0.7, 1.3], dtype=F, requires_grad=True), atol=1e-6
    )
