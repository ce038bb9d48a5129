"""N2: descents by hand, and descents that are interrupted are not taken for finished ones."""

import types

import pytest
import torch

import largeprompt as lp
from largeprompt.runs.study import quiet
from largeprompt.studies.discrete import descent


def test_a_run_that_is_interrupted_is_not_taken_for_a_finished_one(small, monkeypatch):
    def stop(step):
        if step > 2:
            raise KeyboardInterrupt

    for name, part in (
        ("gradient_descent", lambda: descent.descent(small, "softmax", quiet)),
        ("adam_descent", lambda: descent.sign_gaps(small, quiet)),
    ):
        whole = getattr(lp.training, name)
        monkeypatch.setattr(
            descent,
            name,
            lambda *given, whole=whole, **options: whole(*given, progress=stop, **options),
        )
        with pytest.raises(KeyboardInterrupt, match="interrupted after step"):
            part()


def test_runs_descend_each_with_its_own_step_and_those_that_leave_are_gone():
    """On ½‖θ‖² a step η multiplies θ by 1 - η; a step of 4 leaves, and its gradient is taken no
    more.
    """
    asked = []

    def bowl(lengths):
        def gradient(theta):
            assert len(theta) == len(lengths)
            asked.append(len(theta))
            return theta.square().sum(-1) / 2, theta

        return types.SimpleNamespace(lengths=lengths, with_lengths=bowl, gradient=gradient)

    objective = bowl((30.0,) * 3)
    start, steps = (
        torch.tensor([[1.0, -2.0]] * 3, dtype=torch.float64),
        torch.tensor([0.5, 1.9, 4.0], dtype=torch.float64),
    )
    path, gone = descent.descend_together(objective, start, steps, 100)
    assert gone.tolist() == [False, False, True]
    assert path.shape == (descent.LAST, 3, 2)
    for k in (-1, -2):
        torch.testing.assert_close(
            path[k, :2], (1 - steps[:2, None]) ** (101 + k) * start[:2], rtol=1e-12, atol=0.0
        )
    torch.testing.assert_close(path[-1, 2], start[2])
    assert asked == [3] + 99 * [2]  # -3 times (1, -2) has an entry of 6
