"""
Attention is a tilt
===================

Softmax attention gives every token a weight that grows exponentially with its score, then averages.
Seen as a whole, it takes the *distribution* of the tokens, tilts it towards the query, and reports
the mean. Nothing else happens.
"""

import matplotlib.pyplot as plt
import torch

import largeprompt as lp

# %% A prompt of 5,000 one-dimensional tokens, and a query that makes the score of a token equal to
# 1.2 times the token.
tokens = lp.GaussianMixture([0.6, 0.4], [[-1.0], [1.5]], [[[0.5]], [[0.2]]]).sample(
    5_000, torch.Generator().manual_seed(0)
)
weights = torch.softmax(1.2 * tokens[:, 0], dim=0)

# %% Grey: the tokens as they come. Blue: the same tokens, counted by their softmax weights.
# Attention reports the blue mean.
attention = lp.SoftmaxAttention([[1.2]], [[1.0]])
output = float(attention(lp.Empirical(tokens), [1.0])[0])

figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
bins = torch.linspace(-3.5, 3.5, 71).tolist()
axes.hist(tokens[:, 0], bins, density=True, color="0.8", label="tokens")
axes.hist(
    tokens[:, 0],
    bins,
    weights=weights,
    density=True,
    histtype="step",
    color="C0",
    lw=1.5,
    label="softmax weights",
)
axes.axvline(
    float(tokens.mean()),
    color="0.5",
    ls=":",
    label=f"mean of the tokens, {float(tokens.mean()):.2f}",
)
axes.axvline(output, color="C0", ls="--", label=f"attention output, {output:.2f}")
axes.set(xlabel="token", ylabel="density")
axes.legend(frameon=False)
plt.show()
