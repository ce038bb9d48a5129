"""
The tube around the infinite-prompt flow
========================================

Two trainings from the same start, one with prompts of L tokens, one with infinite prompts. How far
apart do their parameters ever get? Solid lines measure it; dashed lines are an upper bound that is
computed along the way.
"""

import matplotlib.pyplot as plt

import largeprompt as lp

# %%
# In-context regression with one input, from a small start.
task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
start = lp.SoftmaxAttention([[0.1, 0.0], [0.0, 0.0]], [[0.0, 0.1]])
lengths, times = [100, 10_000, 1_000_000], [t / 4 for t in range(33)]
tube = lp.training.tube(
    task, start, lengths, until=8.0, times=times, parametrization="block", tolerance=1e-6
)

# %%
# The tube closes as prompts grow, on every bounded stretch of time.
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
tube.plot(axes)
axes.set(xlabel="time of training", ylabel="distance of the parameters")
axes.legend(frameon=False)
plt.show()
