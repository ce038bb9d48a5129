"""
Layers on layers
================

Stack residual attention layers. The infinite prompt stays Gaussian and can be followed by a
recursion; a finite one strays from it, layer by layer, by an amount that is predicted before
anything is run.
"""

import matplotlib.pyplot as plt
import torch

import largeprompt as lp

# %%
# Twelve layers on tokens in the plane, the limit, and the predicted error of a prompt of L tokens.
eye = torch.eye(2, dtype=torch.float64)
stack = lp.depth.ResidualStack(0.3 * eye.expand(12, 2, 2), 0.04 * eye.expand(12, 2, 2))
tokens = lp.Gaussian([0.0, 0.0], eye)
limit = lp.depth.deep_limit(stack, tokens)
predicted = lp.depth.deep_noise(limit).token

# %%
# Marks: forty prompts of each length, run through all layers. Lines: the prediction.
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
generator = torch.Generator().manual_seed(0)
for color, length in (("C0", 64), ("C1", 256), ("C2", 1024)):
    prompts = tokens.sample(40 * length, generator).reshape(40, length, 2)
    strayed = [states - limit.tokens(prompts)[k] for k, states in enumerate(stack.states(prompts))]
    axes.plot(
        [float(shift.square().sum(-1).mean()) ** 0.5 for shift in strayed], "o", ms=4, color=color
    )
    axes.plot((predicted / length).sqrt(), color=color, label=f"{length:,} tokens")
axes.set(xlabel="layer", ylabel="distance of a token from the limit")
axes.legend(frameon=False)
plt.show()
