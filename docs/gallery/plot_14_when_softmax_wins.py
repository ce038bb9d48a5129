"""
When softmax wins: one token that matters
=========================================

Hide the answer in one token of many, marked by a signal of a given strength. Softmax attention
finds it once the strength passes 2 ln L; linear attention would need a strength of order L.
"""

import matplotlib.pyplot as plt
import torch

from largeprompt.studies.softmax_vs_linear.single_location import SingleLocationRegression

# %% The share of the answer that the best layer of each kind reads, among a thousand tokens and
# among a million.
strengths = torch.linspace(0.1, 50, 60, dtype=torch.float64).tolist()
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for colour, length in (("C0", 10**3), ("C1", 10**6)):
    found = [
        float(SingleLocationRegression(2, strength).found_weight(length)) for strength in strengths
    ]
    axes.plot(strengths, found, color=colour, label=f"softmax, {length:,} tokens")
    axes.plot(
        strengths,
        [strength / (strength + length) for strength in strengths],
        "--",
        color=colour,
        label="linear attention",
    )
    axes.axvline(2 * float(torch.tensor(float(length)).log()), color=colour, ls=":", lw=1)

# %%
# Dotted: 2 ln L, where the transition is in the limit of long prompts.
axes.set(xlabel="strength of the signal (squared)", ylabel="share of the answer that is read")
axes.legend(frameon=False)
plt.show()
