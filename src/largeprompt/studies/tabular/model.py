"""The transformer behind TabPFN: labelled rows read each other, rows without a label read the
labelled ones, no positions.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from largeprompt.audit.heads import Heads
from largeprompt.errors import InvalidArgumentError

Visitor = Callable[[int, Heads, Tensor], Tensor | None]


def _nothing(layer: int, heads: Heads, output: Tensor) -> None:
    """The visitor that changes nothing."""


class TableTransformer(nn.Module):
    """Rows of a table in, one logit for each class out; the names of the parameters are those of
    PyTorch's encoder layer.

    With h_i = E x_i + F y_i for the N labelled rows and h_i = E x_i for the others, every layer
    takes

        h ← norm(h + P attention(h; h_1..h_N)),   h ← norm(h + W₂ gelu(W₁ h)),

    in which all rows read the labelled rows and nobody reads the others: the context enters by its
    empirical law alone.

    Parameters
    ----------
    features, width, heads, hidden, layers, classes
        Columns that a table may have, width of the hidden states, heads of a layer, width of its
        network, layers, largest number of classes.
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

    def forward(self, rows: Tensor, labels: Tensor, visitor: Visitor = _nothing) -> Tensor:
        """Logits of the rows without a label.

        Parameters
        ----------
        rows
            Shape (batch, N + M, features), from :func:`prepared`; the first N are labelled.
        labels
            Shape (batch, N): the number of the class of each labelled row.
        visitor
            Called for every layer with its number, its :class:`Heads` and their outputs (batch,
            heads, N + M, width / heads); outputs that it returns take their place.

        Returns
        -------
        Tensor
            Shape (batch, M, classes).
        """
        count = labels.shape[1]
        if rows.shape[1] <= count or rows.shape[2] != self.features:
            allowed = f"(batch, more than {count} rows, {self.features})"
            raise InvalidArgumentError(
                "rows",
                f"shape {tuple(rows.shape)}",
                allowed,
                "Use prepared(context, others, features).",
            )
        embedded = self.encoder(rows)
        labelled = embedded[:, :count] + self.y_encoder(labels[..., None].to(rows.dtype))
        hidden = torch.cat([labelled, embedded[:, count:]], 1)
        for number, layer in enumerate(self.layers):
            hidden = self._layer(number, layer, hidden, count, visitor)
        logits: Tensor = self.decoder(hidden[:, count:])
        return logits

    def _layer(
        self, number: int, layer: nn.Module, hidden: Tensor, count: int, visitor: Visitor
    ) -> Tensor:
        attention: nn.MultiheadAttention = layer.self_attn  # type: ignore[assignment]
        projected = nn.functional.linear(hidden, attention.in_proj_weight, attention.in_proj_bias)
        query, key, value = projected.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        heads = Heads(query, key[:, :, :count], value[:, :, :count], None, query.shape[-1] ** -0.5)
        output = nn.functional.scaled_dot_product_attention(heads.query, heads.key, heads.value)
        changed = visitor(number, heads, output)
        read = (output if changed is None else changed).transpose(1, 2).flatten(2)
        hidden = layer.norm1(hidden + attention.out_proj(read))  # type: ignore[operator]
        between = nn.functional.gelu(layer.linear1(hidden))  # type: ignore[operator]
        found: Tensor = layer.norm2(hidden + layer.linear2(between))  # type: ignore[operator]
        return found


def prepared(context: Tensor, others: Tensor, features: int) -> Tensor:
    """Rows as the model reads them: columns standardised by the context, times features / columns,
    then columns of zeros.

    Parameters
    ----------
    context, others
        Rows with and without a label, shapes (batch, N, columns) and (batch, M, columns).
    features
        Columns that the model reads; the table may have fewer.

    Returns
    -------
    Tensor
        Shape (batch, N + M, features).
    """
    columns = context.shape[-1]
    if columns > features or context.shape[1] < 2:
        given = f"{context.shape[1]} rows of {columns} columns"
        raise InvalidArgumentError(
            "context", given, f"two rows at least, of at most {features} columns"
        )
    mean, spread = context.mean(1, keepdim=True), context.std(1, keepdim=True)
    scaled = (
        (torch.cat([context, others], 1) - mean) / spread.clamp_min(1e-6) * (features / columns)
    )
    return nn.functional.pad(scaled, (0, features - columns))


def load(folder: Path, device: str = "cpu") -> TableTransformer:
    """The model in a folder: ``model.safetensors``, and ``config.json`` with the arguments of
    :class:`TableTransformer`.
    """
    from safetensors.torch import load_file

    if not (folder / "config.json").is_file():
        remedy = "make real fetches them."
        raise InvalidArgumentError(
            "folder", str(folder), "a folder with the weights of the model", remedy
        )
    model = TableTransformer(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.to(device).eval().requires_grad_(False)
