"""
Tokens that depend on one another
=================================

The tokens of a text are not independent. Take a two-state Markov chain whose neighbors tend to
agree: a prompt of L symbols is then worth fewer than L. Attention that averages pays in full;
attention that looks up the current symbol hardly pays at all.
"""

import matplotlib.pyplot as plt
import torch

import largeprompt as lp

# %% A token is a pair of neighbors; the head predicts the symbol that follows the current one. β
# says how hard it looks for a match.
persistence = torch.linspace(0.5, 0.98, 25, dtype=torch.float64).tolist()
eye, length = torch.eye(4, dtype=torch.float64), 2_000
# scores compare with the first symbol of a pair, values are the second
head = lp.SoftmaxAttention(U=eye, V=eye[2:])
cost = {beta: [] for beta in (0.0, 2.0, 8.0)}
for stay in persistence:
    chain = lp.measures.MarkovChain([[stay, 1 - stay], [1 - stay, stay]])
    for beta, column in cost.items():
        path, independent = (
            lp.finite_prompt(head, law, [beta, 0.0, 0.0, 0.0], length)
            for law in (chain, chain.ngrams(2))
        )
        column.append(float(path.mse / independent.mse))

# %%
# How many times the squared error of independent tokens a path of 2,000 symbols has; exact.
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for beta, column in cost.items():
    axes.semilogy(persistence, column, label=f"β = {beta:g}")
axes.set(xlabel="probability that the next symbol is the same", ylabel="price of dependence")
axes.legend(frameon=False)
plt.show()
