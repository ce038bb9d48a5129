"""
Heavy tails: more tokens, fewer read
====================================

For Gaussian tokens a longer prompt means that more tokens are read. For heavy-tailed tokens the
largest one grows without bound, and in the end it takes all the weight: there is no infinite
prompt.
"""

import matplotlib.pyplot as plt
import torch

import largeprompt as lp

# %% Student's t with few degrees of freedom has heavy tails; with many it looks Gaussian, for a
# while. All laws have variance 1.
attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
lengths = [int(length) for length in torch.logspace(0.5, 12, 16, dtype=torch.float64)]
laws = {f"Student's t, {df} degrees of freedom": lp.StudentT(1, df) for df in (3, 5, 10)}
laws["Gaussian"] = lp.Gaussian([0.0], [[1.0]])

# %%
# Each curve is exact; none could be drawn, since the prompts that decide are too rare.
figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for name, tokens in laws.items():
    axes.loglog(
        lengths, lp.finite_prompt(attention, tokens, [1.0], lengths).effective_tokens, label=name
    )
axes.set(xlabel="length of the prompt", ylabel="effective number of tokens", ylim=(0.8, 1e4))
axes.legend(frameon=False, fontsize="small")
plt.show()
