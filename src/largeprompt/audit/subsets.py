"""Length apart from shape: the same head over random subsets of its keys, which are shorter prompts
of the same law.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from largeprompt.audit.heads import Heads, Rows, chunk_numbers

SMALLEST = 64  # keys in a subset, of which half are enough where there would be one size only
ENDS = 2  # keys that stay in every subset, the first and the last
QUERIES = 12  # of each text for which subsets are drawn


def subset_sizes(keys: int) -> list[int]:
    """64, 128, 256, ...: those that fit at least twice; 32 too where that is 64 alone: a line takes
    two sizes beside all keys.
    """
    found = [SMALLEST << step for step in range(32) if SMALLEST << (step + 1) <= keys]
    return [SMALLEST // 2, *found] if len(found) == 1 else found


class Draws(NamedTuple):
    """For which of the queries subsets are drawn, and which: shared by all layers with the same
    mask.
    """

    chosen: Tensor  # places among the queries, ascending
    # keys of each, the first and the last in front, then the others shuffled: (batch or 1, heads or
    # 1, t, keys)
    order: Tensor
    numbers: list[int]  # keys that each may read, which come before all others
    sizes: list[int]
    # which of the subsets of all sizes are of a size and count, else the one beyond all: (t, sizes,
    # most of one size)
    pick: Tensor
    rank: Tensor  # place of the lower median among these, (t, sizes)


def subset_statistics(heads: Heads, positions: Tensor) -> dict[str, Tensor]:
    """``subset_N_error`` of every head at some of the query positions that see at least half of the
    keys; NaN at the others.

    Each of shape (batch, heads, positions), float64 on the CPU, as :func:`head_statistics` gives
    its statistics. Beside them ``subset_all_error`` and ``subset_tokens``, error and number of all
    keys at the same positions.
    """
    some = heads.at(positions.to(heads.query.device))
    draws = drawn(some, keys_read(some))
    return (
        {}
        if draws is None
        else {
            name: each.cpu().to(torch.float64) for name, each in subset_errors(some, draws).items()
        }
    )


def keys_read(heads: Heads) -> list[int]:
    """How many keys each query may read, the fewest over texts and heads."""
    if heads.allowed is None:
        return [heads.key.shape[2]] * heads.query.shape[2]
    numbers: list[int] = (
        heads.allowed.expand(-1, -1, heads.query.shape[2], heads.key.shape[2])
        .sum(-1)
        .amin((0, 1))
        .tolist()
    )
    return numbers


def drawn(heads: Heads, numbers: Sequence[int]) -> Draws | None:
    """Random subsets of the keys of some queries, which may read so many; None where these are too
    few.

    A random n of exchangeable tokens are a prompt of n tokens of the same law, so that what changes
    with n is due to length, and what stays is due to shape. The first and the last key that a query
    may read stay in every subset, as every prompt has them. The others are shuffled and cut into as
    many subsets as there is room for.
    """
    most_read = max(numbers)
    late = [place for place, number in enumerate(numbers) if number >= most_read / 2]
    picked = (
        torch.linspace(len(late) - 1, 0, min(QUERIES, len(late))).round().long().flip(0).tolist()
    )
    chosen = [late[place] for place in picked]
    own = [numbers[place] for place in chosen]
    sizes, device, keys = subset_sizes(min(own)), heads.key.device, heads.key.shape[2]
    if not sizes:
        return None
    places = torch.tensor(chosen, device=device)
    chance = torch.rand(len(chosen), keys, generator=torch.Generator().manual_seed(0)).to(device)[
        None, None
    ]
    if heads.allowed is not None:
        allowed = heads.allowed.expand(-1, -1, heads.query.shape[2], keys).index_select(2, places)
        chance = torch.where(allowed, chance, 3.0)
    readable = (chance < 2).int()
    for end in (
        readable.argmax(-1, keepdim=True),
        keys - 1 - readable.flip(-1).argmax(-1, keepdim=True),
    ):
        chance = chance.scatter(-1, end, -1.0)
    most = [_count(max(own), size) for size in sizes]
    counts = torch.tensor([[_count(number, size) for size in sizes] for number in own])[..., None]
    place = torch.arange(max(most))
    pick = torch.where(
        place < counts,
        torch.tensor(most).cumsum(0)[:, None] - torch.tensor(most)[:, None] + place,
        sum(most),
    )
    order = chance.argsort(-1)[..., : max(own)]
    return Draws(
        places, order, own, sizes, pick.to(device), ((counts - 1) // 2).squeeze(-1).to(device)
    )


def _count(number: int, size: int) -> int:
    """How many subsets of this size so many keys give."""
    return (number - ENDS) // (size - ENDS)


def subset_errors(heads: Heads, draws: Draws) -> dict[str, Tensor]:
    """What :func:`subset_statistics` gives, of all the queries and on their device."""
    rows = heads.at(draws.chosen).scored()
    room = chunk_numbers(heads) // (rows.value[..., 0, :].numel() * draws.order.shape[-1])
    starts = range(0, len(draws.numbers), max(1, room))
    errors = torch.cat(
        [errors_within(rows, draws, slice(start, start + starts.step)) for start in starts], 2
    )
    weights, number = rows.weights()[0], rows.number()
    affine = rows.weighted(rows.only_allowed(1 + rows.centred()[1])) / number[..., None]
    whole = _relative(rows.read(weights - affine), rows.read(weights))
    found = torch.cat(
        [medians(errors, draws), whole[..., None], number.expand(whole.shape)[..., None]], -1
    )
    empty = found.new_full(
        (heads.batch, heads.count, heads.query.shape[2], found.shape[-1]), torch.nan
    )
    names = (*(f"subset_{size}_error" for size in draws.sizes), "subset_all_error", "subset_tokens")
    return dict(zip(names, empty.index_copy(2, draws.chosen, found).unbind(-1), strict=True))


def _relative(missed: Tensor, output: Tensor) -> Tensor:
    return (missed.square().sum(-1) / output.square().sum(-1)).sqrt()


def medians(errors: Tensor, draws: Draws) -> Tensor:
    """Lower medians over the subsets of each size that count: (batch, heads, t, sizes) of (batch,
    heads, t, subsets).
    """
    b, h = errors.shape[:2]
    known = torch.nn.functional.pad(errors, (0, 1), value=torch.inf).gather(
        -1, draws.pick.flatten(1).expand(b, h, -1, -1)
    )
    ranked = known.unflatten(-1, draws.pick.shape[1:]).sort(-1).values
    found: Tensor = ranked.gather(-1, draws.rank[..., None].expand(b, h, -1, -1, -1)).squeeze(-1)
    return found


def errors_within(rows: Rows, draws: Draws, some: slice) -> Tensor:
    """Relative error of the affine read-out over n random keys with these keys' own moments, in
    every subset.

    With w the softmax weights within the subset and s the scores less their mean, the error is Σ
    [w - (1 + s)/n] v, over Σ w v; with position biases b, their weights e^b/Σ e^b stand for 1/n, in
    the mean score too. For some of the queries, shape (batch, heads, t, subsets).
    """
    order = draws.order[:, :, some]
    b, h, t, g = (
        *rows.scores.shape[:2],
        order.shape[2],
        rows.value.shape[1] if order.shape[1] == 1 else rows.scores.shape[1],
    )

    def shuffled(each: Tensor) -> Tensor:  # (b, h, t, S) to (b, g, t, h/g, keys)
        found = each[:, :, some].expand(b, h, -1, -1).gather(3, order.expand(b, h, -1, -1))
        return found.reshape(b, g, h // g, t, -1).transpose(2, 3)

    # of each text and group of heads
    own = torch.arange(b * rows.value.shape[1], device=order.device).reshape(b, -1, 1, 1)
    place = own.repeat_interleave(g // rows.value.shape[1], 1) * rows.value.shape[2] + order
    value = (
        rows.value.flatten(0, 2)
        .index_select(0, place.flatten())
        .reshape(b, g, t, -1, rows.value.shape[-1])
    )
    scores, bias = shuffled(rows.scores), None if rows.bias is None else shuffled(rows.bias)
    found = []
    for size in draws.sizes:
        subsets = _count(max(draws.numbers), size)
        last = ENDS + subsets * (size - ENDS)

        # (b, g, t, subsets, h/g, n)
        def cut(each: Tensor, subsets: int = subsets, last: int = last) -> Tensor:
            ends = each[..., None, :ENDS].expand(*each.shape[:-1], subsets, ENDS)
            return torch.cat(
                [ends, each[..., ENDS:last].unflatten(-1, (subsets, -1))], -1
            ).transpose(3, 4)

        s = cut(scores)
        if bias is None:
            weights, affine = torch.softmax(s, -1), (1 + s - s.mean(-1, keepdim=True)) / size
        else:
            before, weights = torch.softmax(cut(bias), -1), torch.softmax(s + cut(bias), -1)
            affine = before * (1 + s - (before * s).sum(-1, keepdim=True))
        both = torch.cat([weights - affine, weights], 4)  # (b, g, t, subsets, 2 h/g, n)
        inner = value[..., ENDS:last, :].reshape(b * g * t * subsets, size - ENDS, -1)
        read = (both[..., ENDS:].reshape(len(inner), -1, size - ENDS) @ inner).view(
            *both.shape[:-1], -1
        )
        read += (both[..., :ENDS].flatten(3, 4) @ value[..., :ENDS, :]).view_as(read)
        found.append(
            _relative(*read.split(h // g, 4)).permute(0, 1, 4, 2, 3).reshape(b, h, t, subsets)
        )
    return torch.cat(found, -1)
