"""Length apart from shape: the same head over random subsets of its keys, which are shorter prompts of the same law."""

import torch
from torch import Tensor

from largeprompt.audit.heads import Heads, Rows

SMALLEST = 64  # keys in a subset
ENDS = 2  # keys that stay in every subset, the first and the last
QUERIES = 12  # of each text for which subsets are drawn
WHOLE = ("all_error", "tokens")


def subset_sizes(keys: int) -> list[int]:
    """64, 128, 256, ...: those that fit at least twice."""
    return [SMALLEST << step for step in range(32) if SMALLEST << (step + 1) <= keys]


def subset_statistics(heads: Heads, positions: Tensor) -> dict[str, Tensor]:
    """``subset_N_error`` of every head at some of the query positions that see at least half of the keys; NaN at the others.

    Each of shape (batch, heads, positions), float64 on the CPU, as :func:`head_statistics` gives its statistics. Beside them
    ``subset_all_error`` and ``subset_tokens``, error and number of all keys at the same positions.
    """
    shape = (heads.batch, heads.count, len(positions))
    numbers = torch.cat([rows.number().expand(-1, -1, rows.scores.shape[2]) for _, rows in heads.rows(positions)], -1)
    least = numbers.amin((0, 1)).expand(len(positions))
    late = (least >= least.max() / 2).nonzero().squeeze(-1)
    chosen = late[torch.linspace(len(late) - 1, 0, min(QUERIES, len(late)), device=late.device).round().long().flip(0)]
    sizes = subset_sizes(int(least[chosen].min()))
    found = {name: torch.full(shape, torch.nan, dtype=torch.float64) for name in (*(f"{size}_error" for size in sizes), *WHOLE)}
    for seed, (place, rows) in enumerate(heads.rows(positions[chosen])):
        at = torch.isin(positions, place).cpu()
        for name, values in _subset_errors(rows, sizes, seed).items():
            found[name][:, :, at] = values.cpu().to(torch.float64)
    return {f"subset_{name}": values for name, values in found.items()} if sizes else {}


def _subset_errors(rows: Rows, sizes: list[int], seed: int) -> dict[str, Tensor]:
    """Relative error of the affine read-out over n random keys with these keys' own moments, for each size n.

    A random n of exchangeable tokens are a prompt of n tokens of the same law, so that what changes with n is due to length, and
    what stays is due to shape. The first and the last key that a query may read stay in every subset, as every prompt has them.
    The others are shuffled and cut into as many subsets as there is room for; the median over these has shape (batch, heads, t).
    With w the softmax weights within the subset and s the scores less their mean, the error is Σ [w - (1 + s)/n] v, over Σ w v.
    """
    b, h, t, keys = rows.scores.shape
    found = {name: rows.scores.new_empty((b, h, t)) for name in (*(f"{size}_error" for size in sizes), *WHOLE)}
    draw = torch.Generator().manual_seed(seed)
    for place in range(t):
        chance = torch.rand(keys, generator=draw).to(rows.scores.device)[None, None]
        number = keys
        if rows.allowed is not None:
            chance = torch.where(rows.allowed[:, :, place], chance, 3.0)
            number = int(rows.allowed[:, :, place].sum(-1).min())
        readable = (chance < 2).int()
        for end in (readable.argmax(-1, keepdim=True), keys - 1 - readable.flip(-1).argmax(-1, keepdim=True)):
            chance = chance.scatter(-1, end, -1.0)
        order = chance.argsort(-1)[..., :number]
        scores = rows.scores[:, :, place].take_along_dim(order, -1)
        value = rows.value if order.shape[1] == 1 else rows.value.repeat_interleave(rows.share, 1)
        value = value.take_along_dim(order[..., None], 2)
        for size in sizes:
            found[f"{size}_error"][:, :, place] = _errors(scores, value, size).median(-1).values
        found["all_error"][:, :, place] = _errors(scores, value, number).squeeze(-1)
        found["tokens"][:, :, place] = number
    return found


def _errors(scores: Tensor, value: Tensor, size: int) -> Tensor:
    """Errors of all subsets of the first two keys and consecutive others, shape (batch, heads, subsets)."""
    b, h, number = scores.shape
    g, count = value.shape[1], (number - ENDS) // (size - ENDS)
    last = ENDS + count * (size - ENDS)
    s, v = scores.reshape(b, g, h // g, number), value
    ends = s[..., None, :ENDS].expand(-1, -1, -1, count, -1), v[:, :, None, :ENDS].expand(-1, -1, count, -1, -1)
    s = torch.cat([ends[0], s[..., ENDS:last].unflatten(-1, (count, -1))], -1).transpose(2, 3)  # (b, g, count, h/g, size)
    v = torch.cat([ends[1], v[:, :, ENDS:last].unflatten(2, (count, -1))], -2)  # (b, g, count, size, o)
    weights = torch.softmax(s, -1)
    affine = (1 + s - s.mean(-1, keepdim=True)) / size
    missed, output = ((each @ v).square().sum(-1) for each in (weights - affine, weights))
    return (missed / output).sqrt().transpose(2, 3).reshape(b, h, count)
