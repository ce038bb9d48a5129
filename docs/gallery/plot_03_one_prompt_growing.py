"""
Watch a prompt grow
===================

Read the first 10, 20, 50, ... tokens of a stream with the same query. The output wanders, then
settles on the value for the infinite prompt. How far it still wanders at each length is known
exactly, before a single token is drawn.
"""

import matplotlib.pyplot as plt
import torch

import largeprompt as lp

# %%
# Twelve streams of signs, read at 25 lengths each. Every length is a prefix of the same stream.
attention, signs, query = lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Rademacher(1), [1.0]
lengths = [int(length) for length in torch.logspace(1, 4, 25)]
drawn = lp.sample_prompts(attention, signs, query, lengths, 12, torch.Generator().manual_seed(0))

# %% The band is the mean of a prompt of that length, plus and minus two standard deviations, from
# the exact law.
law = lp.finite_prompt(attention, signs, query, lengths)
mean, spread = law.mean[:, 0], 2 * law.covariance[:, 0, 0].sqrt()

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
axes.fill_between(
    lengths,
    mean - spread,
    mean + spread,
    color="C0",
    alpha=0.2,
    lw=0,
    label="exact law, ± 2 standard deviations",
)
axes.plot(lengths, drawn.outputs[:, :, 0], color="C0", lw=0.7)
axes.axhline(float(law.limit[0]), color="k", ls="--", lw=1, label="infinite prompt, tanh(1)")
axes.set(xscale="log", xlabel="length of the prompt", ylabel="attention output")
axes.legend(frameon=False, loc="lower right")
plt.show()
