"""Gaussian mixtures of keys and values."""

import torch

from largeprompt.audit.clusters import responsibilities


def test_responsibilities_sum_to_one_and_forget_padding(random_heads, masks):
    heads = random_heads(mask=masks(50)["padded"])
    member = responsibilities(heads, (3,), sinks=2)[3]
    assert member.shape == (2, 2, 50, 5)
    torch.testing.assert_close(member[0].sum(-1), torch.ones(2, 50, dtype=torch.float64))
    assert float(member[1, :, 40:].abs().max()) == 0


def test_planted_clusters_are_found_by_the_likelier_start(planted):
    """Three of them far apart; after the trial rounds one start goes on alone, each text and head
    with its own.
    """
    heads = planted("mixture", texts=2)
    member = responsibilities(heads, (3,), seed=1)[3]
    joint = torch.cat([heads.key, heads.value], -1)
    centers = (member.mT @ joint) / member.sum(2)[..., None]  # (texts, 1, 3, width)
    spread = ((joint[..., None, :] - centers[:, :, None]).square().sum(-1) * member).sum(
        (2, 3)
    ) / 400
    whole = (joint - joint.mean(2, keepdim=True)).square().sum(-1).mean(2)
    assert bool((spread < 0.05 * whole).all())


def test_all_sizes_are_fitted_and_more_components_fit_better(planted):
    heads = planted("mixture", texts=2)
    found = responsibilities(heads, (1, 2, 4))
    assert [each.shape[-1] for each in found.values()] == [1, 2, 4]
    x = torch.cat([heads.key, heads.value], -1)
    errors = []
    for member in found.values():
        centers = (member.mT @ x) / member.sum(2)[..., None]
        errors.append(float((member @ centers - x).square().sum()))
    assert errors == sorted(errors, reverse=True)
