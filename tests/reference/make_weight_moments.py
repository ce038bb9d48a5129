"""Write weight_moments.json: moments of softmax weights in 40-digit arithmetic, for the tests to
compare with.

Run ``python tests/reference/make_weight_moments.py`` (mpmath; minutes, faster with gmpy2
installed). The formula is derived in docs/law.md; what is independent of the library is the
arithmetic (no log1p/expm1 devices are needed at 40 digits), the step, the range, and the sum over
partitions, which is written out by brute force over assignments of factors to distinct tokens.
"""

import itertools
import json
from pathlib import Path

import mpmath
from mpmath import mp, mpf

mp.dps = 40
STEP = mpf(1) / 10
PRODUCTS = [
    [(2, 0)],
    [(3, 0)],
    [(5, 0)],
    [(1, 1), (1, 1)],
    [(2, 0), (2, 0)],
    [(1, 2), (2, 1)],
    [(2, 0), (2, 0), (3, 0)],
    [(2, 0), (2, 0), (2, 0), (2, 0)],
]
CASES = [
    (2, "0.05"),
    (10, "0.05"),
    (10**12, "0.05"),
    (3, "0.7"),
    (1000, "0.7"),
    (10**12, "0.7"),
    (10**15, "0.7"),
]
CASES += [
    (2, "3"),
    (50, "3"),
    (10**6, "3"),
    (10**12, "3"),
    (2, "10"),
    (10**4, "10"),
    (10**12, "10"),
]


def tables(sigma, length):
    """φ and every G_ab on a grid of τ, with E[·] as a plain sum over the same nodes of ξ for all of
    them.
    """
    pairs = sorted(
        {
            (sum(a for a, _ in s), sum(b for _, b in s))
            for p in PRODUCTS
            for n in range(1, len(p) + 1)
            for s in itertools.combinations(p, n)
        }
    )
    step = min(STEP, STEP / sigma)
    below = 30 + mpmath.log(length) + min(mpf(3) / 2 * sigma**2, 11 * sigma)
    above = 6 + 12 * sigma
    taus = [-below + STEP * j for j in range(int((below + above) / STEP) + 1)]
    reach = min(17 + 9 * sigma, (8 + below) / sigma + 1)
    nodes = [k * step for k in range(-int(16 / step), int(max(16, reach) / step) + 1)]
    density = [step * mpmath.npdf(x) for x in nodes]
    growth = [mpmath.exp(sigma * x) for x in nodes]
    weighted = {
        (a, b): [d * g**a * x**b for d, g, x in zip(density, growth, nodes, strict=True)]
        for a, b in pairs
    }
    rows = []
    for tau in taus:
        t = mpmath.exp(tau)
        survival = [mpmath.exp(-t * g) if t * g < 200 else mpf(0) for g in growth]
        rows.append(
            (
                mpmath.fdot(survival, density),
                {
                    (a, b): t**a * mpmath.fdot(survival, kernel)
                    for (a, b), kernel in weighted.items()
                },
            )
        )
    return rows


def moment(rows, length, product):
    """Sum over assignments of the factors to distinct tokens: functions from factors to labels, in
    order of first use.
    """
    total, n = mpf(0), sum(a for a, _ in product)
    for labels in itertools.product(range(len(product)), repeat=len(product)):
        if any(label > max(labels[:i], default=-1) + 1 for i, label in enumerate(labels)):
            continue
        k = max(labels) + 1
        blocks = [
            (
                sum(a for (a, _), m in zip(product, labels, strict=True) if m == j),
                sum(b for (_, b), m in zip(product, labels, strict=True) if m == j),
            )
            for j in range(k)
        ]
        if k > length:
            continue
        tokens = mpmath.fprod(length - i for i in range(k))
        integral = STEP * mpmath.fsum(
            phi ** (length - k) * mpmath.fprod(g[block] for block in blocks) for phi, g in rows
        )
        total += tokens * integral / mpmath.factorial(n - 1)
    return total


def main():
    results = []
    for length, scale in CASES:
        rows = tables(mpf(scale), length)
        values = [mpmath.nstr(moment(rows, length, product), 25) for product in PRODUCTS]
        results.append({"length": length, "scale": scale, "values": values})
        print(length, scale, values[0], flush=True)
    path = Path(__file__).with_name("weight_moments.json")
    path.write_text(
        json.dumps(
            {"made_by": Path(__file__).name, "products": PRODUCTS, "cases": results}, indent=1
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
