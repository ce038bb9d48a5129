"""
An error bar for one real prompt
================================

You have one prompt and no law. An error bar from the softmax weights says how far its output is
from what an infinite prompt of the same kind would give. It is an estimate: for strong queries it
is too small, and it warns.
"""

import matplotlib.pyplot as plt
import torch

import largeprompt as lp

# %% Thirty prompts of 1,000 Gaussian tokens for a mild query and for a strong one; each gives an
# output with its own error bar.
tokens = (
    lp.Gaussian([0.0], [[1.0]])
    .sample(30_000, torch.Generator().manual_seed(0))
    .reshape(30, 1000, 1)
)
attention = lp.SoftmaxAttention([[1.0]], [[1.0]])

# %%
# Dashed: the truth, which nobody knows in practice. Red: bars of 1.96 standard errors that miss it.
figure, panels = plt.subplots(1, 2, figsize=(7, 3.4), layout="constrained")
for axes, query in zip(panels, (0.7, 2.5), strict=True):
    bar = attention.error_bar(lp.Empirical(tokens), [query])
    output, width = bar.output[:, 0], 1.96 * bar.standard_error[:, 0]
    misses = (output - query).abs() > width
    for chosen, color in ((~misses, "C0"), (misses, "C3")):
        places = torch.arange(30)[chosen]
        axes.errorbar(places, output[chosen], width[chosen], fmt="o", ms=3, lw=1, color=color)
    axes.axhline(query, color="k", ls="--", lw=1)
    axes.set(
        title=f"score variance {query**2:.2g}: {int(misses.sum())} of 30 miss",
        xlabel="prompt",
        ylabel="output",
    )
plt.show()
