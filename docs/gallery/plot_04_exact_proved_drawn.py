"""
The error, three ways: exact, proved, drawn
===========================================

How far is a prompt of L tokens from the infinite one? The library answers in three ways that share
no code: an exact formula, a bound with a proof, and prompts drawn at random.
"""

import matplotlib.pyplot as plt
import torch

import largeprompt as lp

# %%
# Sixteen-dimensional Gaussian tokens and a query whose scores have variance 2.
eye, query = torch.eye(16, dtype=torch.float64), torch.zeros(16, dtype=torch.float64)
query[0] = 2**0.5
attention, tokens = lp.SoftmaxAttention(eye, eye), lp.Gaussian(0 * query, eye)

# %% The exact law and the certificate cost the same at ten tokens and at a million (or 10¹⁵).
# Drawing stops at ten thousand.
lengths = [int(length) for length in torch.logspace(0, 6, 49, dtype=torch.float64)]
law, bound = (
    compute(attention, tokens, query, lengths) for compute in (lp.finite_prompt, lp.certificate)
)
drawn = lp.sample_prompts(
    attention,
    tokens,
    query,
    [10, 100, 1000, 10_000],
    400,
    torch.Generator().manual_seed(0),
    reduced=True,
)

figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
law.plot(axes, marker="")
bound.plot(axes)
drawn.plot(law.limit, axes, color="k")
axes.set(xlabel="length of the prompt", ylabel="root mean squared error")
axes.legend(frameon=False)
plt.show()
