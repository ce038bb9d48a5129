"""
The risk of a layer, without drawing a prompt
=============================================

In-context regression: the prompt shows inputs with their answers, y = w·x + noise, and the layer
has to answer for a new input. Its expected loss is an exact number at every length, for softmax and
for linear attention.
"""

import matplotlib.pyplot as plt
import torch

import largeprompt as lp

# %% Inputs in the plane. For each length the layer is the best of its kind: the two are compared at
# their best.
eye = torch.eye(2, dtype=torch.float64)
task = lp.LinearRegression(covariance=eye, prior_covariance=eye / 2, noise_variance=0.1)
lengths = [2, 5, 10, 30, 100, 1000]
best = {
    kind: [lp.training.isotropic_optimum(task, length, kind).risk for length in lengths]
    for kind in (lp.SoftmaxAttention, lp.LinearAttention)
}

# %% Both come down to the noise. Linear attention is ahead at every length: on this task there is
# nothing for softmax to select.
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
axes.semilogx(lengths, best[lp.SoftmaxAttention], "o-", ms=4, label="best softmax layer")
axes.semilogx(lengths, best[lp.LinearAttention], "s-", ms=4, label="best linear attention")
axes.semilogx(
    lengths,
    [task.bayes_risk(length) for length in lengths],
    "k--",
    lw=1,
    label="nobody can do better (Bayes)",
)
axes.set(xlabel="length of the prompt", ylabel="risk", ylim=(0, None))
axes.legend(frameon=False)
plt.show()
