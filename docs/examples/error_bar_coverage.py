"""How often T_L ± 1.96 standard errors reaches the limit along u, by the prompt's tail index
(docs/howto/real_prompt.md).
"""

import itertools
import math

import torch

import largeprompt as lp

LAWS = {
    "Gaussian, σ² = 0.5": (lp.Gaussian([0.0], [[1.0]]), math.sqrt(0.5)),
    "Gaussian, σ² = 2": (lp.Gaussian([0.0], [[1.0]]), math.sqrt(2)),
    "Gaussian, σ² = 4": (lp.Gaussian([0.0], [[1.0]]), 2.0),
    "Laplace, u = 0.5": (lp.Laplace(1), 0.5),
    "Laplace, u = 1 (no variance)": (lp.Laplace(1), 1.0),
    "0.9995 N(0, 1) + 0.0005 N(6, 0.1), u = 1": (
        lp.GaussianMixture([0.9995, 0.0005], [[0.0], [6.0]], [[[1.0]], [[0.1]]]),
        1.0,
    ),
}
LEVELS = (-math.inf, 0.3, 0.5, 0.7, math.inf)


def share(covered: torch.Tensor, chosen: torch.Tensor) -> str:
    """Share of prompts that are chosen, and their coverage, in percent."""
    count = int(chosen.sum())
    return f"{100 * count / len(chosen):.0f} %: " + (
        f"{100 * float(covered[chosen].mean()):.0f}" if count > 30 else "-"
    )


def main(length: int = 1000, prompts: int = 4000) -> None:
    """Print a row for each law: coverage over all prompts, then over those whose tail index lies
    between two levels.
    """
    generator, layer = torch.Generator().manual_seed(0), lp.SoftmaxAttention([[1.0]], [[1.0]])
    print(
        "| tokens | all |",
        " | ".join(f"k from {low} to {high}" for low, high in itertools.pairwise(LEVELS)),
        "|",
    )
    for name, (mu, u) in LAWS.items():
        tokens = mu.sample(prompts * length, generator).reshape(prompts, length, 1)
        bar = layer.error_bar(lp.Empirical(tokens), [u])
        covered = ((bar.output - layer(mu, [u])).abs() <= 1.959964 * bar.standard_error)[
            :, 0
        ].double()
        parts = [
            (bar.tail_index >= low) & (bar.tail_index < high)
            for low, high in itertools.pairwise(LEVELS)
        ]
        print(
            f"| {name} | {100 * float(covered.mean()):.0f} |",
            " | ".join(share(covered, part) for part in parts),
            "|",
        )


if __name__ == "__main__":
    main()
