"""
Three regimes of attention
==========================

How strongly the query scores, and how long the prompt is, decide together what softmax attention
does: average over many tokens (*linear*), lean on rare large ones (*heavy*), or pick a few
(*frozen*).
"""

import matplotlib.pyplot as plt
import numpy as np

import largeprompt as lp

# %%
# Gaussian tokens: 40 score variances, 40 lengths from 10 to a trillion, all exact.
variances, lengths = np.linspace(0.05, 30, 40), np.round(np.logspace(1, 12, 40))
attention, tokens = lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Gaussian([0.0], [[1.0]])
law = lp.finite_prompt(attention, tokens, np.sqrt(variances)[:, None], lengths.tolist())

# %% Color: how many tokens are effectively read, as a power of ten. Lines: where one regime ends
# and the next begins.
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
image = axes.pcolormesh(
    variances, lengths, law.effective_tokens.log10().numpy(), shading="gouraud", cmap="viridis"
)
for factor, name in ((2.0, "linear above"), (0.5, "frozen below")):
    border = np.exp(factor * variances)
    axes.plot(
        variances[border < 1e12], border[border < 1e12], "w--" if factor == 2 else "w-", label=name
    )
axes.set(
    yscale="log", ylim=(10, 1e12), xlabel="variance of the scores", ylabel="length of the prompt"
)
axes.legend(loc="lower right", facecolor="0.3", labelcolor="w")
figure.colorbar(image, label="effective number of tokens, power of ten")
plt.show()
