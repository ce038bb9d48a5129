"""
How long is long enough?
========================

Ask the other way round: for a given accuracy, how many tokens does a prompt need before it may be
treated as infinite? The answer comes exact, or certified, and may be *never*.
"""

import matplotlib.pyplot as plt
import torch

import largeprompt as lp

# %% Four-dimensional tokens. The query gives scores of variance 1; Laplace tokens, whose tails are
# heavier, are read half as strongly.
eye, query = (
    torch.eye(4, dtype=torch.float64),
    torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64),
)
attention = lp.SoftmaxAttention(eye, eye)
laws = {
    "Gaussian": lp.Gaussian(0 * query, eye),
    "signs (±1)": lp.Rademacher(4),
    "Laplace, at half the tilt": lp.Laplace(4),
}
tolerances = [0.5, 0.1, 0.02]

# %%
# Solid: exact. Dotted: proved to suffice. The price of a proof is small where prompts are long.
figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for color, (name, law) in zip(("C0", "C1", "C2"), laws.items(), strict=True):
    z = query if "half" not in name else query / 2
    exact, proved = (
        [lp.prompt_length(attention, law, z, tolerance, method).length for tolerance in tolerances]
        for method in ("exact", "certified")
    )
    axes.loglog(tolerances, exact, "o-", ms=4, color=color, label=name)
    axes.loglog(tolerances, proved, ":", color=color)
axes.invert_xaxis()
axes.set_xticks(tolerances, [str(tolerance) for tolerance in tolerances], minor=False)
axes.xaxis.set_minor_formatter("")
axes.set(xlabel="tolerance (root mean squared error)", ylabel="tokens needed")
axes.legend(frameon=False)
plt.show()
