"""
Gaussian tokens give a straight line, others do not
===================================================

Let the prompt become infinitely long. What softmax attention returns is then a function of the
query alone. For Gaussian tokens this function is a straight line: softmax attention has become
*linear* attention. For other tokens it bends.
"""

import matplotlib.pyplot as plt
import torch

import largeprompt as lp

# %% Four laws of tokens with mean 0 and variance 1. A law takes the place of a prompt: it *is* the
# infinite prompt.
attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
laws = {
    "Gaussian": lp.Gaussian([0.0], [[1.0]]),
    "uniform": lp.Uniform(1),
    "signs (±1)": lp.Rademacher(1),
    "two clusters": lp.GaussianMixture([0.8, 0.2], [[-0.45], [1.8]], [[[0.19]], [[0.19]]]),
}
queries = torch.linspace(-3, 3, 121, dtype=torch.float64).unsqueeze(-1)

# %% Only the mean and the variance enter the line; everything else about the law is in the distance
# from it.
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, law in laws.items():
    axes.plot(queries[:, 0], attention(law, queries)[:, 0], label=name)
axes.set(xlabel="query", ylabel="output on the infinite prompt")
axes.legend(frameon=False)
plt.show()
