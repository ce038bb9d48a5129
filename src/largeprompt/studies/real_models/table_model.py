"""The transformer behind TabPFN: every row reads the labeled ones, and there are no positions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from largeprompt.audit.heads import Heads
from largeprompt.errors import InvalidArgumentError

Visitor = Callable[[int, Heads], None]


class TableTransformer(nn.Module):
    """Rows of a table in, one logit for each class out; parameters are named as in PyTorch.

    With h_i = E x_i + F y_i for the N labeled rows and h_i = E x_i for the others, every layer
    takes

        h ← norm(h + P attention(h; h_1..h_N)),   h ← norm(h + W₂ gelu(W₁ h)),

    so that the context enters by its empirical law alone.
    """

    def __init__(
        self, features: int, width: int, heads: int, hidden: int, layers: int, classes: int
    ) -> None:
        super().__init__()
        self.features, self.width, self.heads = features, width, heads
        self.encoder, self.y_encoder = nn.Linear(features, width), nn.Linear(1, width)
        make = nn.TransformerEncoderLayer
        self.layers = nn.ModuleList(
            make(width, heads, hidden, 0.0, "gelu", batch_first=True) for _ in range(layers)
        )
        self.decoder = nn.Sequential(
            nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, classes)
        )

    def forward(self, rows: Tensor, labels: Tensor, visitor: Visitor | None = None) -> Tensor:
        """Logits (batch, M, classes) of the rows without a label.

        Parameters
        ----------
        rows
            Shape (batch, N + M, features), from :func:`prepared`; the first N are labeled.
        labels
            Shape (batch, N): the number of the class of each labeled row.
        visitor
            Called for every layer with its number and its :class:`Heads`.
        """
        count = labels.shape[1]
        embedded = self.encoder(rows)
        labeled = embedded[:, :count] + self.y_encoder(labels[..., None].to(rows.dtype))
        hidden = torch.cat([labeled, embedded[:, count:]], 1)
        layer: Any
        for number, layer in enumerate(self.layers):
            attention = layer.self_attn
            each = nn.functional.linear(hidden, attention.in_proj_weight, attention.in_proj_bias)
            query, key, value = each.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            key, value = key[:, :, :count], value[:, :, :count]
            if visitor is not None:
                visitor(number, Heads(query, key, value))
            read = nn.functional.scaled_dot_product_attention(query, key, value)
            hidden = layer.norm1(hidden + attention.out_proj(read.transpose(1, 2).flatten(2)))
            between = nn.functional.gelu(layer.linear1(hidden))
            hidden = layer.norm2(hidden + layer.linear2(between))
        logits: Tensor = self.decoder(hidden[:, count:])
        return logits


def prepared(context: Tensor, others: Tensor, features: int) -> Tensor:
    """Rows as the model reads them, (batch, N + M, features), with and without a label.

    Columns are standardized by the labeled rows and multiplied by features / columns; columns of
    zeros follow.
    """
    columns = context.shape[-1]
    if columns > features or context.shape[1] < 2:
        given = f"{context.shape[1]} rows of {columns} columns"
        allowed = f"two rows at least, of at most {features} columns"
        raise InvalidArgumentError("context", given, allowed)
    mean, spread = context.mean(1, keepdim=True), context.std(1, keepdim=True)
    scaled = (torch.cat([context, others], 1) - mean) / spread.clamp_min(1e-6)
    return nn.functional.pad(scaled * (features / columns), (0, features - columns))


def load(folder: Path, device: str = "cpu") -> TableTransformer:
    """The model in a folder: ``model.safetensors``, and ``config.json`` with its arguments."""
    from safetensors.torch import load_file

    if not (folder / "config.json").is_file():
        remedy = "make real fetches them."
        raise InvalidArgumentError(
            "folder", str(folder), "a folder with the weights of the model", remedy
        )
    model = TableTransformer(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.to(device).eval().requires_grad_(False)
