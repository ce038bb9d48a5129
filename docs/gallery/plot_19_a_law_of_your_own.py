"""
A law of your own
=================

Tokens of a kind that the library does not have? Write its cumulant generating function and a
sampler: two methods. Limits, exact laws of finite prompts, certificates and planning follow.
"""

import matplotlib.pyplot as plt
import torch

import largeprompt as lp


# %%
# Counts with mean 1, centered. Tilting a Poisson law only changes its rate, so the sampler is one
# line.
class Poisson(lp.scalar.ScalarLaw):
    """Poisson with unit rate, centered: Λ(u) = e^u - 1 - u."""

    def cgf(self, u):
        return torch.expm1(u) - u

    def sample(self, u, generator):
        return torch.poisson(torch.exp(u), generator=generator) - 1


tokens, attention = lp.Product([Poisson()]), lp.SoftmaxAttention([[1.0]], [[1.0]])
lengths = [10, 30, 100, 300, 1000, 3000, 10_000]

# %%
# Lines: exact, at any length. Dotted: proved. Marks: 500 prompts drawn.
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for color, query in (("C0", 0.5), ("C1", 1.0)):
    law, bound = (
        compute(attention, tokens, [query], lengths)
        for compute in (lp.finite_prompt, lp.certificate)
    )
    drawn, _ = lp.sample_prompts(
        attention, tokens, [query], lengths, 500, torch.Generator().manual_seed(0)
    ).mse(law.limit)
    axes.loglog(lengths, law.rmse, color=color, label=f"query {query:g}")
    axes.loglog(lengths, bound.rmse, ":", color=color)
    axes.loglog(lengths, drawn.sqrt(), "o", ms=4, color=color)
axes.set(xlabel="length of the prompt", ylabel="root mean squared error")
axes.legend(frameon=False)
plt.show()
