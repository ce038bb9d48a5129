"""
Where softmax looks
===================

The same 1,000 tokens, read with weak, medium and strong queries. A weak query averages over
everybody; a strong one listens to a handful of tokens, however long the prompt is. The *effective
number of tokens* puts a number on that.
"""

import matplotlib.pyplot as plt
import torch

import largeprompt as lp

# %% Scores of Gaussian tokens with variance 0.5, 4 and 16. Their softmax weights, largest first,
# summed up.
scores = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
gaussian = lp.Gaussian([0.0], [[1.0]])

# %% A curve that shoots up at the left is a prompt in which a few tokens decide. The legend has the
# expected effective number.
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for variance in (0.5, 4.0, 16.0):
    weights = torch.softmax(variance**0.5 * scores, dim=0).sort(descending=True).values
    law = lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), gaussian, [variance**0.5], 1000)
    axes.plot(
        range(1, 1001),
        weights.cumsum(0),
        label=f"score variance {variance:g}: reads {float(law.effective_tokens):.3g} tokens",
    )
axes.set(
    xscale="log", xlabel="number of tokens, largest weight first", ylabel="share of the weight"
)
axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0))
plt.show()
