"""
Audit an attention module
=========================

Which heads of a model only read the mean and covariance of their prompt, and could be replaced by
linear attention? Here: an untrained PyTorch module whose eight heads score more and more strongly.
"""

import matplotlib.pyplot as plt
import torch

from largeprompt.audit import FINDINGS, audit_heads, module_heads, summary

# %%
# Multiply the queries of head h by a factor between 1/2 and 16, and read 400 random tokens.
generator = torch.Generator().manual_seed(0)
module = torch.nn.MultiheadAttention(64, 8, batch_first=True)
with torch.no_grad():
    module.in_proj_weight.copy_(torch.randn(192, 64, generator=generator) / 8)
    module.in_proj_weight[:64] *= torch.logspace(-1, 4, 8, base=2).repeat_interleave(8)[:, None]
heads = summary(
    audit_heads(module_heads(module, torch.randn(1, 400, 64, generator=generator)), components=())
).isel(layer=0)

# %% Below the line the affine read-out is within a fifth of the head's output. The colors are the
# audit's verdicts.
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for code in sorted(set(heads.finding.values.tolist())):
    chosen = heads.where(heads.finding == code, drop=True)
    axes.loglog(chosen.score_variance, chosen.affine_error, "o", label=FINDINGS[code])
axes.axhline(0.2, color="k", ls=":", lw=1)
axes.set(xlabel="variance of the scores of a head", ylabel="error of its affine read-out")
axes.legend(frameon=False)
plt.show()
