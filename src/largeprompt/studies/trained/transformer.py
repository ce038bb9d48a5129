"""Small causal transformers for in-context regression, several trained side by side."""

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

NAME = r"^(shuffled )?(attention|blocks) ([1-9]\d*)x([1-9]\d*)$"  # of a model
# query (batch, heads, T, d), key and value (batch, heads, S, d), mask (1, 1, T, S) of what may be
# read, factor of the scores
Attend = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]


def softmax_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float
) -> Tensor:
    """Σ_l softmax(scale · query · key_l) value_l over the keys that the mask allows."""
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


def reading_mask(length: int, prefixes: Sequence[int]) -> Tensor:
    """Mask (1, 1, length + queries, length): token l reads 1..l, query i the first prefixes[i].

    Nobody reads a query token, itself included: prompts of several lengths share one sequence.
    """
    rows = torch.cat([torch.arange(1, length + 1), torch.as_tensor(list(prefixes))])
    return (torch.arange(length) < rows[:, None])[None, None]


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Shape of a transformer that answers in-context regression.

    'attention': layers of bare attention on the tokens, z ← z + Σ_h P_h Σ_l softmax(z_l·U_h z) z_l,
    read at the last coordinate of the query token. 'blocks': linear embedding, pre-norm blocks of
    attention and a GELU network, a last LayerNorm, linear read-out.
    """

    kind: str
    layers: int
    heads: int  # in each layer
    inputs: int  # dimension d + 1 of the tokens (x, y)
    width: int = 32  # of the residual stream of 'blocks', a multiple of the heads
    shuffled: bool = False  # trained on prompts without information

    @classmethod
    def named(cls, name: str, inputs: int, width: int) -> Self:
        """The shape of 'attention LxH' or 'blocks LxH', after 'shuffled ' or not."""
        found = re.fullmatch(NAME, name)
        assert found is not None  # as the settings have checked
        return cls(found[2], int(found[3]), int(found[4]), inputs, width, found[1] is not None)

    @property
    def stream(self) -> int:
        """Width of the residual stream."""
        return self.inputs if self.kind == "attention" else self.width

    @property
    def head_width(self) -> int:
        """Width of a head: all of a bare token, or a share of the stream."""
        return self.inputs if self.kind == "attention" else self.width // self.heads

    @property
    def scale(self) -> float:
        """Factor of the scores."""
        return 1 / math.sqrt(self.head_width)


class StackedTransformer:
    """``runs`` transformers with weights of their own: each product of matrices serves all.

    The generator draws the first weights, in float32.
    """

    def __init__(self, architecture: Architecture, runs: int, generator: torch.Generator) -> None:
        self.architecture, self.runs = architecture, runs
        self.parameters: dict[str, Tensor] = {}
        shape = architecture
        w, inner = shape.stream, shape.heads * shape.head_width
        deep = 1 / math.sqrt(2 * shape.layers)  # keeps the stream of order one

        def weight(name: str, rows: int, columns: int, size: float = 1.0) -> None:
            drawn = torch.randn(self.runs, rows, columns, generator=generator)
            self.parameters[name] = (drawn * size / math.sqrt(rows)).requires_grad_()

        def constant(name: str, columns: int, value: float) -> None:
            self.parameters[name] = torch.full((self.runs, 1, columns), value).requires_grad_()

        def norm(name: str) -> None:
            constant(f"{name}.gain", w, 1.0)
            constant(f"{name}.shift", w, 0.0)

        for i in range(shape.layers):
            weight(f"{i}.read", w, 3 * inner)  # query, key, value
            weight(f"{i}.write", inner, w, deep)
        if shape.kind == "attention":
            return
        weight("embed", shape.inputs, w)
        constant("embed.bias", w, 0.0)
        for i in range(shape.layers):
            norm(f"{i}.before")
            norm(f"{i}.between")
            weight(f"{i}.up", w, 4 * w)
            constant(f"{i}.up.bias", 4 * w, 0.0)
            weight(f"{i}.down", 4 * w, w, deep)
            constant(f"{i}.down.bias", w, 0.0)
        norm("last")
        weight("answer", w, 1)
        constant("answer.bias", 1, 0.0)

    def __call__(self, tokens: Tensor, mask: Tensor, attend: Attend = softmax_attention) -> Tensor:
        """Answers at the query tokens, shape (runs, batch, queries).

        ``tokens`` are a prompt, then queries, shape (runs, batch, length + queries, inputs);
        ``attend``, for softmax attention, sees (run, prompt) flattened.
        """
        runs, batch, rows, _ = tokens.shape
        length = mask.shape[-1]
        shape, get = self.architecture, self.parameters
        stream = tokens if shape.kind == "attention" else self._affine(tokens, "embed")
        for i in range(shape.layers):
            # of the last layer only the answers are read
            begin = length if i == shape.layers - 1 else 0
            source = stream if shape.kind == "attention" else self._norm(stream, f"{i}.before")
            read, inner = get[f"{i}.read"], shape.heads * shape.head_width
            query = self._heads(self._product(source[:, :, begin:], read[..., :inner]))
            both = self._product(source[:, :, :length], read[..., inner:])
            key, value = (self._heads(each) for each in both.split(inner, dim=-1))
            found = attend(query, key, value, mask[..., begin:, :], shape.scale)
            found = found.transpose(1, 2).reshape(runs, batch, rows - begin, inner)
            stream = stream[:, :, begin:] + self._product(found, get[f"{i}.write"])
            if shape.kind == "blocks":
                inside = self._affine(self._norm(stream, f"{i}.between"), f"{i}.up")
                stream = stream + self._affine(functional.gelu(inside), f"{i}.down")
        if shape.kind == "attention":
            return stream[..., -1]
        return self._affine(self._norm(stream, "last"), "answer").squeeze(-1)

    @staticmethod
    def _product(x: Tensor, weight: Tensor) -> Tensor:
        return torch.bmm(x.reshape(len(x), -1, x.shape[-1]), weight).reshape(*x.shape[:-1], -1)

    def _affine(self, x: Tensor, name: str) -> Tensor:
        flat = x.reshape(len(x), -1, x.shape[-1])
        return torch.baddbmm(self.parameters[f"{name}.bias"], flat, self.parameters[name]).reshape(
            *x.shape[:-1], -1
        )

    def _norm(self, x: Tensor, name: str) -> Tensor:
        gain, shift = (self.parameters[f"{name}.{each}"].unsqueeze(1) for each in ("gain", "shift"))
        return torch.addcmul(shift, functional.layer_norm(x, x.shape[-1:]), gain)

    def _heads(self, x: Tensor) -> Tensor:
        shape = self.architecture
        return x.reshape(-1, x.shape[-2], shape.heads, shape.head_width).transpose(1, 2)

    def single_layer(self) -> tuple[Tensor, Tensor]:
        """U (runs, D, D) and V (runs, 1, D) of one bare layer with one head, float64."""
        shape = self.architecture
        query, key, value = self.parameters["0.read"].detach().double().chunk(3, dim=-1)
        write = self.parameters["0.write"].detach().double()
        return shape.scale * key @ query.mT, (value @ write)[..., -1:].mT


def train(
    model: StackedTransformer,
    draw: Callable[[], tuple[Tensor, Tensor]],
    mask: Tensor,
    *,
    steps: int,
    learning_rate: float,
    watch: Callable[[int], None],
) -> None:
    """Adam on the mean squared error, the rate warmed up, then lowered to 0 by a cosine.

    ``draw`` gives fresh tokens and answers; ``watch`` is called with the number of steps taken,
    before the first and after every one; each run's gradient is kept to length one.
    """
    optimizer = torch.optim.Adam(model.parameters.values(), lr=learning_rate, betas=(0.9, 0.98))
    warm = max(1, steps // 20)
    watch(0)
    for step in range(steps):
        rate = min(1.0, (step + 1) / warm) * (1 + math.cos(math.pi * step / steps)) / 2
        optimizer.param_groups[0]["lr"] = learning_rate * rate
        tokens, answers = draw()
        optimizer.zero_grad(set_to_none=True)
        (model(tokens, mask) - answers).square().mean((1, 2)).sum().backward()
        gradients = [each.grad for each in model.parameters.values() if each.grad is not None]
        norms = torch.stack([each.flatten(1).square().sum(1) for each in gradients]).sum(0).sqrt()
        for each in gradients:
            each.mul_((1 / norms.clamp_min(1.0))[:, None, None])
        optimizer.step()
        watch(step + 1)
