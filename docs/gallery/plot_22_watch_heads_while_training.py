"""
Watch heads while a model trains
================================

A small language model learns to repeat: the second half of each text is its first half. The monitor
measures every head in the forward pass. At first a head averages over all keys; when the model
learns to copy, the heads of the second layer read a single token.
"""

import matplotlib.pyplot as plt
import torch
import transformers

from largeprompt.audit import monitor

# %% Two layers of four heads, and texts that repeat themselves.
torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=32, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4
)
model = transformers.LlamaForCausalLM(config).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
generator = torch.Generator().manual_seed(0)

# %% Train; measure every tenth pass.
with monitor(model, every=10) as watched:
    for _ in range(150):
        half = torch.randint(32, (16, 24), generator=generator)
        text = torch.cat([half, half], -1)
        loss = model(input_ids=text, labels=text).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
data = watched.to_xarray()

# %%
# Effective number of tokens that each head reads, of about 36 keys.
figure, panels = plt.subplots(1, 2, figsize=(7, 3), sharey=True, layout="constrained")
for layer, axes in enumerate(panels):
    for head in data["head"].values:
        axes.plot(data.step, data.effective_tokens.sel(layer=layer, head=head), label=f"H{head}")
    axes.set(title=f"layer {layer}", xlabel="training step", ylim=(0, None))
panels[0].set_ylabel("effective tokens")
panels[1].legend(frameon=False)
plt.show()
