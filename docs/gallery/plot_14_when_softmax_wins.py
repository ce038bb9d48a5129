"""
When softmax wins: one token that matters
=========================================

Hide the answer in one token of many, marked by a signal of a given strength. Softmax attention
finds it once the strength passes 2 ln L; linear attention would need a strength of order L.
"""

import matplotlib.pyplot as plt
import numpy as np

from largeprompt.studies.softmax_vs_linear.location import missed_weight

# %% The share of the answer that the best layer of each kind reads, among a thousand tokens and
# among a million.
strengths = np.linspace(0.1, 50, 60)
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for color, length in (("C0", 10**3), ("C1", 10**6)):
    found = 1 - missed_weight(length, strengths)
    axes.plot(strengths, found, color=color, label=f"softmax, {length:,} tokens")
    linear = strengths / (strengths + length)
    axes.plot(strengths, linear, "--", color=color, label="linear attention")
    axes.axvline(2 * np.log(length), color=color, ls=":", lw=1)

# %%
# Dotted: 2 ln L, where the transition is in the limit of long prompts.
axes.set(xlabel="strength of the signal (squared)", ylabel="share of the answer that is read")
axes.legend(frameon=False)
plt.show()
