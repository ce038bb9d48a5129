"""Write finite_prompt.json: laws of attention over finite prompts in 30-digit arithmetic, for the tests to compare with.

Run ``python tests/reference/make_finite_prompt.py`` (mpmath; two minutes). Tokens enter by real sums over their own density, one
coordinate at a time: no cumulant generating function, no complex tilt. At 40 digits nothing needs log1p, centring or a choice of
contours, so that e^{-tZ} is integrated as it stands:

    E T_L = L ∫ φ^{L-1} g_1 dτ,  E Y = L ∫ φ^{L-1} G_2[1] dτ,  E‖T_L‖² = L ∫ φ^{L-1} G_2[x·x] dτ + L(L-1) ∫ φ^{L-2} g_1·g_1 dτ.
"""

import itertools
import json
from pathlib import Path

import mpmath
from mpmath import mp, mpf

mp.dps = 40
STEP = mpf(1) / 8  # of τ: the rule errs by e^{-π²/STEP}, 5e-35
SMALL = mpf(10) ** -20
LENGTHS = [2, 10, 1000, 10**9]


def legendre(low, high, count):
    """Nodes and weights of the Gauss-Legendre rule, by Newton's iteration."""
    nodes, weights = [], []
    for k in range(count):
        x = mpmath.cos(mp.pi * (k + mpf(3) / 4) / (count + mpf(1) / 2))
        for _ in range(7):
            p, q = mpf(1), x
            for n in range(2, count + 1):
                p, q = q, ((2 * n - 1) * x * q - (n - 1) * p) / n
            slope = count * (p - x * q) / (1 - x * x)
            x -= q / slope
        nodes.append((low + high) / 2 + (high - low) / 2 * x)
        weights.append((high - low) / ((1 - x * x) * slope**2))
    return nodes, weights


def exponential(rate, last):
    """e^{-rate x} on x > 0 by the trapezoid rule for x = log(1 + e^{y - e^{-y}}): x ~ y far out, and no kink at 0."""
    step, nodes, weights = mpf(1) / 6, [], []
    for j in range(-int(5 / step), int(last / step)):
        inner = mpmath.exp(step * j - mpmath.exp(-step * j))
        x = mpmath.log1p(inner)
        nodes.append(x)
        weights.append(step * (1 + mpmath.exp(-step * j)) * inner / (1 + inner) * mpmath.exp(-rate * x))
    return nodes, weights


def sign():
    return [mpf(-1), mpf(1)], [mpf(1) / 2] * 2


def uniform():
    end = mpmath.sqrt(3)
    nodes, weights = legendre(-end, end, 56)
    return nodes, [w / (2 * end) for w in weights]


def laplace():
    rate = mpmath.sqrt(2)
    (right, w), (left, v) = exponential(rate, 90), exponential(rate, 40)
    return [-x for x in left] + right, [rate / 2 * m for m in v + w]


def normal(mean, deviation):
    step = mpf(1) / 5
    grid = [step * j for j in range(-68, 69)]
    return [mean + deviation * x for x in grid], [step * mpmath.npdf(x) for x in grid]


def product(laws, u):
    """Atoms (mass, score, mean and mean square of the token) of independent coordinates, of mean 0 and variance 1 where u_i = 0."""
    tilted = [i for i, entry in enumerate(u) if entry]
    atoms = []
    for choice in itertools.product(*(list(zip(*laws[i], strict=True)) for i in tilted)):
        mass = mpmath.fprod(w for _, w in choice)
        token = [mpf(0)] * len(u)
        for i, (x, _) in zip(tilted, choice, strict=True):
            token[i] = x
        square = mpmath.fsum(x * x for x, _ in choice) + (len(u) - len(tilted))
        atoms.append((mass, mpmath.fsum(x * u[i] for i, (x, _) in zip(tilted, choice, strict=True)), token, square))
    return atoms


def sphere(dim, size):
    """Along the tilt a coordinate r c with density ∝ (1 - c²)^{(d-3)/2}, c = cos θ; ‖x‖² = r² = d; across it the mean is 0."""
    angles, weights = legendre(mpf(0), mp.pi, 60)
    masses = [w * mpmath.sin(a) ** (dim - 2) for a, w in zip(angles, weights, strict=True)]
    total, radius = mpmath.fsum(masses), mpmath.sqrt(dim)
    return [
        (m / total, size * radius * mpmath.cos(a), [radius * mpmath.cos(a)] + [mpf(0)] * (dim - 1), mpf(dim))
        for a, m in zip(angles, masses, strict=True)
    ]


def mixture(dim, size):
    """0.4 N(-1, 1/4) + 0.6 N(1/2, 1) in the first coordinate, which alone is tilted; the others have mean ±1 and variance 1/2."""
    atoms = []
    for weight, mean, deviation, other in ((mpf(2) / 5, -1, mpf(1) / 2, -1), (mpf(3) / 5, mpf(1) / 2, mpf(1), 1)):
        for x, w in zip(*normal(mean, deviation), strict=True):
            atoms.append((weight * w, size * x, [x] + [mpf(other)] * (dim - 1), x * x + (dim - 1) * (other**2 + mpf(1) / 2)))
    return atoms


def solve(atoms):
    """Mean of T_L, E Y and E‖T_L - T‖² for every length, T the softmax mean of the law itself."""
    masses, scores, tokens, squares = zip(*atoms, strict=True)
    growth = [mpmath.exp(s) for s in scores]
    dim = len(tokens[0])
    once = [m * g for m, g in zip(masses, growth, strict=True)]
    twice = [m * g for m, g in zip(once, growth, strict=True)]
    total = mpmath.fsum(once)
    moved = [[a * x[i] for a, x in zip(once, tokens, strict=True)] for i in range(dim)]
    active = [i for i in range(dim) if any(moved[i])]
    limit = [mpmath.fsum(moved[i]) / total for i in range(dim)]
    # ‖x - T‖² at the nodes, so that G_2 is that of the centred token; exact algebra, no digits are at stake at 40
    centred = [
        q - 2 * mpmath.fsum(limit[i] * x[i] for i in active) + mpmath.fsum(t * t for t in limit)
        for q, x in zip(squares, tokens, strict=True)
    ]
    pair = [a * c for a, c in zip(twice, centred, strict=True)]
    below, above = mpmath.log(max(LENGTHS)) + 60 + max(scores), 6 - min(scores)
    sums = {length: [[mpf(0)] * dim, mpf(0), mpf(0)] for length in LENGTHS}
    for j in range(-int(below / STEP), int(above / STEP) + 1):
        t = mpmath.exp(STEP * j)
        kept = [1 - t * g if t * g < SMALL else mpmath.exp(-t * g) if t * g < 150 else mpf(0) for g in growth]
        phi = mpmath.fdot(kept, masses)
        if not phi:
            continue
        first = [
            t * (mpmath.fdot(kept, moved[i]) - limit[i] * mpmath.fdot(kept, once)) if i in active else mpf(0) for i in range(dim)
        ]
        collision, spread = t * t * mpmath.fdot(kept, twice), t * t * mpmath.fdot(kept, pair)
        size = mpmath.fsum(g * g for g in first)
        for length, row in sums.items():
            left = length * STEP * phi ** (length - 2)
            row[0] = [a + left * phi * g for a, g in zip(row[0], first, strict=True)]
            row[1] += left * phi * collision
            row[2] += left * phi * spread + left * (length - 1) * size
    return [[[mpmath.nstr(a, 30) for a in bias], mpmath.nstr(y, 30), mpmath.nstr(mse, 30)] for bias, y, mse in sums.values()]


def cases():
    half, three = mpf(1) / 2, mpf(3)
    for u in ([half], [three], [mpf(7) / 10, mpf(-2) / 5], [mpf(7) / 10, mpf(-2) / 5, mpf(9) / 10]):
        yield "rademacher", u, product([sign()] * len(u), u)
    flat, sharp = uniform(), laplace()
    for u in ([half], [mpf(2)], [half, mpf(0)], [mpf(1), mpf(0), mpf(0)]):
        yield "uniform", u, product([flat] * len(u), u)
    coarse = (lambda nodes: (nodes[0], [w / (2 * mpmath.sqrt(3)) for w in nodes[1]]))(legendre(-mpmath.sqrt(3), mpmath.sqrt(3), 28))
    u = [mpf(2) / 5, mpf(-3) / 10]
    yield "uniform", u, product([coarse] * 2, u)
    for u in ([half], [mpf(9) / 10], [half, mpf(0), mpf(0)]):
        yield "laplace", u, product([sharp] * len(u), u)
    for dim, size in ((2, half), (2, mpf(2)), (3, half), (3, mpf(2))):
        yield "sphere", [size] + [mpf(0)] * (dim - 1), sphere(dim, size)
    for dim, size in ((1, half), (1, mpf(2)), (2, half), (3, mpf(1))):
        yield "mixture", [size] + [mpf(0)] * (dim - 1), mixture(dim, size)


def main():
    table = [
        {"law": law, "u": [mpmath.nstr(entry, 20) for entry in u], "lengths": LENGTHS, "values": solve(atoms)}
        for law, u, atoms in cases()
    ]
    text = json.dumps({"columns": ["bias", "collision", "mse"], "cases": table}, indent=1)
    Path(__file__).with_name("finite_prompt.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
