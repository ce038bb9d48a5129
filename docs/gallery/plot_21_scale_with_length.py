"""
How attention should scale with length
======================================

A longer prompt spreads softmax over more keys. The factor that keeps the effective number of
tokens is the root of one equation; every published rule is that factor for one score variance.
"""

import matplotlib.pyplot as plt
import numpy as np

import largeprompt as lp
from largeprompt.planning import log_n_scaling, yarn_scaling

# %%
# Scores of variance σ² over 8192 keys, read with 65,536 keys.
trained, longer = 8192, 65_536
variances = np.geomspace(0.5, 30, 60)
exact = lp.length_scaling(longer, trained, variances)

figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
axes.plot(variances, exact, lw=2, label="exact")
for rule, name, style in ((log_n_scaling, "log-n, LongRoPE", "--"), (yarn_scaling, "YaRN", ":")):
    factor = float(rule(longer, trained))
    axes.axhline(factor, color="0.35", ls=style, label=name)
    crossing = np.interp(-factor, -exact.numpy(), variances)
    axes.plot(crossing, factor, "o", color="0.35")
    axes.annotate(f"σ² = {crossing:.1f}", (crossing, factor), (6, 6), textcoords="offset points")
axes.set(xscale="log", xlabel="score variance σ² at 8192 keys", ylabel="factor on the scores")
axes.set_xticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
axes.set_title("8 times the trained length", fontsize=10)
axes.legend(frameon=False)
plt.show()
