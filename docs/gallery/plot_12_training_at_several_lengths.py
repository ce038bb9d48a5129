"""
Training at several lengths
===========================

Train a softmax layer on in-context regression by gradient flow: with prompts of 30, 300 and 3,000
tokens, and with infinite ones. No prompt is drawn; the flow follows the exact risk.
"""

import math

import matplotlib.pyplot as plt

import largeprompt as lp

# %%
# One input coordinate, no noise, and a small start. All four lengths are integrated side by side.
task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
start = lp.SoftmaxAttention([[0.1, 0.0], [0.0, 0.0]], [[0.0, 0.1]])
lengths = [30, 300, 3_000, math.inf]
flow = lp.gradient_flow(task, start, lengths, until=10.0, parametrization="block", tolerance=1e-5)

# %%
# Long prompts follow the infinite one, then stop at a risk of their own.
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
flow.plot(axes)
axes.set(xlabel="time of training", ylabel="risk", ylim=(1e-5, 1))
axes.legend(frameon=False, title="prompts of length")
plt.show()
