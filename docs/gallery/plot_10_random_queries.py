"""
Rare large queries set the pace
===============================

With one query the error of a long prompt falls like 1/√L. Averaged over *random* queries it can
fall far more slowly: the rare large ones are still frozen when all others are done. The exponent is
known.
"""

import matplotlib.pyplot as plt
import torch

import largeprompt as lp

# %% Standard normal tokens and queries; H² is the mean variance of the scores. Averages are
# integrals, not samples.
normal = lp.Gaussian([0.0], [[1.0]])
lengths = [int(length) for length in torch.logspace(1, 14, 14, dtype=torch.float64)]

# %%
# Below H² = 1/2 the curves run parallel to the dotted 1/√L; above it they do not.
figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for square in (0.25, 1.0, 2.0):
    average = lp.query_average(
        lp.SoftmaxAttention([[square**0.5]], [[1.0]]), normal, normal, lengths
    )
    axes.loglog(lengths, average.rmse / average.rmse[0], label=f"H² = {square:g}")
axes.loglog(
    lengths,
    (lengths[0] / torch.tensor(lengths, dtype=torch.float64)).sqrt(),
    "k:",
    lw=1,
    label="1/√L",
)
axes.set(xlabel="length of the prompt", ylabel="error, relative to ten tokens")
axes.legend(frameon=False)
plt.show()
