"""
Leaving the Gaussian by degrees
===============================

The sum of k random signs is a sign for k = 1 and nearly Gaussian for large k. On the way, the
distance between softmax attention and its straight line shrinks like 1/k. A prompt has to be long
enough to notice.
"""

import matplotlib.pyplot as plt

import largeprompt as lp

# %% The gap between the infinite prompt and the straight line, and the typical error of finite
# prompts of 100 and 10,000 tokens.
attention, query = lp.SoftmaxAttention([[1.0]], [[1.0]]), [1.0]
counts, gap, errors = [1, 2, 4, 8, 16, 32, 64, 128], [], {100: [], 10_000: []}
for count in counts:
    tokens = lp.scalar.RademacherSum(1, count)
    matrix, offset = lp.affine_limit(attention, tokens)
    gap.append(float((attention(tokens, query) - matrix[:, 0] - offset).abs()[0]))
    for length, row in zip(
        errors, lp.finite_prompt(attention, tokens, query, list(errors)).rmse, strict=True
    ):
        errors[length].append(float(row))

# %% Left of the crossing a prompt of that length tells these tokens from Gaussian ones; right of
# it, it cannot.
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
axes.loglog(counts, gap, "o-", ms=4, label="distance of the limit from the straight line")
for color, (length, row) in zip(("C1", "C2"), errors.items(), strict=True):
    axes.loglog(counts, row, "--", color=color, label=f"typical error of {length:,} tokens")
axes.set(xlabel="number of signs in a token", ylabel="distance")
axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0))
plt.show()
