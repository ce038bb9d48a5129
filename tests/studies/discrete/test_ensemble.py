"""The noise of stochastic gradients and ensembles of runs."""

import pytest
import torch
from training_examples import SCALAR, scalar_layer

import largeprompt as lp
from largeprompt.studies.discrete.ensemble import gradient_noise, stochastic_ensemble
from largeprompt.training.risk.objective import make_objective


def test_noise_of_linear_attention_is_orthogonal_to_its_symmetry():
    """Every prompt keeps U -> cU, V -> V/c for linear attention, so that (U, -V) has no noise;
    softmax breaks it.
    """
    found = {}
    for kind in (lp.SoftmaxAttention, lp.LinearAttention):
        objective, start, _ = make_objective(SCALAR, scalar_layer(kind=kind), 10, "full")
        noise = gradient_noise(
            SCALAR, objective, start[0], 10, 400, torch.Generator().manual_seed(0), groups=2
        )
        flat = torch.cat([start[0, :4], -start[0, 4:]])
        found[kind] = float(flat @ noise.mean(0) @ flat)
        assert noise.shape == (2, 6, 6)
    assert abs(found[lp.LinearAttention]) < 1e-12
    assert found[lp.SoftmaxAttention] > 1e-3


GENERATOR = torch.Generator()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: stochastic_ensemble(SCALAR, scalar_layer(), 10, 0.1, 5, 2, 1, GENERATOR),
            "replicas",
        ),
        (
            lambda: stochastic_ensemble(SCALAR, scalar_layer(), 10, 0.1, 5, 0, 2, GENERATOR),
            "batch_size",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
