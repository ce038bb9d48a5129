"""Draw the pictures of docs/start/pictures.md into docs/images: attention is a tilt,
in five steps.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import largeprompt as lp

FOLDER = Path(__file__).parents[1] / "images"
GREY, BLUE, RED = "0.75", "#0072B2", "#D55E00"
X = np.linspace(-4, 4.5, 400)


def bell(mean: float, variance: float) -> np.ndarray:
    """Density of N(mean, variance) on the grid."""
    return np.exp(-((X - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)


def bare(axes: plt.Axes, title: str) -> None:
    """Leave nothing but the horizontal axis and a title."""
    axes.set(yticks=[], title=title)
    axes.spines[["left", "right", "top"]].set_visible(False)


def save(figure: plt.Figure, name: str) -> None:
    """Write a picture."""
    figure.savefig(FOLDER / f"{name}.png", dpi=140)
    plt.close(figure)


def idea() -> None:
    """Tokens, the same tokens with softmax weights, and the mean that attention reports."""
    tokens = lp.Gaussian([0.0], [[1.0]]).sample(40, torch.Generator().manual_seed(6))[:, 0]
    weights = torch.softmax(1.2 * tokens, 0)
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 2.5), layout="constrained")
    for axes, sizes, curve, title in (
        (panels[0], torch.full((40,), 25.0), bell(0, 1), "1. a prompt: a cloud of tokens"),
        (panels[1], 1000 * weights, bell(1.2, 1), "2. the query tilts it"),
        (panels[2], None, bell(1.2, 1), "3. attention reports the mean"),
    ):
        color = GREY if axes is panels[0] else BLUE
        axes.fill_between(X, curve, color=color, alpha=0.35, lw=0)
        if sizes is not None:
            axes.scatter(
                tokens,
                np.full(40, -0.06),
                sizes,
                color=color if color != GREY else "0.4",
                alpha=0.6,
                lw=0,
                clip_on=False,
            )
        axes.set(ylim=(-0.13, 0.55), xlim=(-4, 4.5), xticks=[])
        bare(axes, title)
    ramp = 0.02 * np.exp(1.2 * X)
    panels[1].plot(X[ramp < 0.5], ramp[ramp < 0.5], color=RED, lw=1.5)
    panels[1].text(2.3, 0.46, "weight", color=RED, ha="right")
    for axes in panels[1:]:
        axes.plot(X, bell(0, 1), color=GREY, lw=1)
    panels[2].plot([1.2, 1.2], [-0.02, 0.42], color=BLUE, lw=2)
    panels[2].text(1.2, 0.45, "output", color=BLUE, ha="center")
    save(figure, "idea")


def shapes() -> None:
    """Three laws, tilted a little and a lot: a bell moves, signs only change their heights,
    clusters trade places.
    """
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 2.6), layout="constrained")
    mixture = lp.GaussianMixture([0.7, 0.3], [[-1.0], [2.0]], [[[0.25]], [[0.25]]])
    for tilt, color in ((0.0, GREY), (0.7, "#56B4E9"), (1.6, BLUE)):
        panels[0].plot(X, bell(tilt, 1), color=color, lw=2)
        up = np.exp(tilt) / (2 * np.cosh(tilt))
        panels[1].bar(
            [-1 + 0.3 * tilt - 0.25, 1 + 0.3 * tilt - 0.25], [1 - up, up], 0.18, color=color
        )
        tilted = mixture.tilt([tilt])
        parts = zip(
            tilted.weights.tolist(),
            tilted.means[:, 0].tolist(),
            tilted.covariances[:, 0, 0].tolist(),
            strict=True,
        )
        panels[2].plot(
            X,
            sum(weight * bell(mean, variance) for weight, mean, variance in parts),
            color=color,
            lw=2,
        )
    for axes, title in zip(
        panels,
        ("Gaussian: the bell moves", "signs: the bars change", "clusters: the weight moves over"),
        strict=True,
    ):
        axes.set(xlim=(-2, 2) if "signs" in title else (-4, 4.5))
        bare(axes, title)
    panels[1].set_xticks([-1, 1], ["-1", "+1"])
    save(figure, "idea_shapes")


def outputs() -> None:
    """What attention over the three infinite prompts returns for every query."""
    attention, queries = (
        lp.SoftmaxAttention([[1.0]], [[1.0]]),
        torch.linspace(-2.5, 2.5, 101, dtype=torch.float64)[:, None],
    )
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 2.6), layout="constrained", sharey=True)
    laws = (
        lp.Gaussian([0.0], [[1.0]]),
        lp.Rademacher(1),
        lp.GaussianMixture([0.7, 0.3], [[-1.0], [2.0]], [[[0.25]], [[0.25]]]),
    )
    for axes, law, title in zip(
        panels,
        laws,
        ("Gaussian: a straight line", "signs: a bend", "clusters: a step"),
        strict=True,
    ):
        matrix, offset = lp.affine_limit(attention, law)
        axes.plot(
            queries[:, 0],
            queries[:, 0] * matrix[0, 0] + offset,
            color=GREY,
            ls="--",
            label="affine map",
        )
        axes.plot(
            queries[:, 0],
            attention(law, queries)[:, 0],
            color=BLUE,
            lw=2,
            label="softmax attention",
        )
        axes.set(xlabel="query", title=title, ylim=(-3.5, 4))
        axes.spines[["right", "top"]].set_visible(False)
    panels[0].set_ylabel("output")
    panels[1].legend(frameon=False, loc="lower right")
    save(figure, "idea_outputs")


def longer() -> None:
    """Outputs over 3,000 drawn prompts of three lengths, and the limit."""
    attention, law = lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Gaussian([0.0], [[1.0]])
    drawn = lp.sample_prompts(
        attention, law, [1.0], [10, 100, 1000], 3000, torch.Generator().manual_seed(0)
    )
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 2.3), layout="constrained", sharex=True)
    for axes, outcome, length in zip(panels, drawn.outputs[:, :, 0], drawn.lengths, strict=True):
        axes.hist(outcome, np.linspace(-0.5, 2, 76), density=True, color=BLUE, alpha=0.5)
        axes.axvline(1.0, color="k", lw=1)
        bare(axes, f"prompts of {length:,} tokens")
    save(figure, "idea_longer")


def looks() -> None:
    """Softmax weights of the same thirty tokens for a weak, a medium and a strong query."""
    tokens = (
        torch.randn(30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        .sort()
        .values
    )
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 2.3), layout="constrained")
    for axes, strength, title in zip(
        panels,
        (0.3, 1.5, 6.0),
        ("weak query: all", "medium: some", "strong: one or two"),
        strict=True,
    ):
        weights = torch.softmax(strength * tokens, 0)
        axes.bar(range(30), weights, color=BLUE)
        axes.set(xticks=[], xlabel=f"reads {1 / float(weights.square().sum()):.1f} tokens of 30")
        bare(axes, title)
    save(figure, "idea_looks")


if __name__ == "__main__":
    for draw in (idea, shapes, outputs, longer, looks):
        draw()
