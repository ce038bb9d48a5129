"""Write chain.json: attention over paths of Markov chains in 60-digit arithmetic, for the tests to
compare with.

Run ``python tests/reference/make_chain.py`` (mpmath; a minute or two). E T_L - T = ∫ E[A e^{-tB}]
dt, E‖T_L - T‖² = ∫ t E[‖A‖² e^{-tB}] dt and E Y = ∫ t E[Σ e^{2s} e^{-tB}] dt, formula (ngram.6) of
docs/mathematics/ngram.md, by plain powers of the transfer matrix: at 60 digits nothing need be kept
apart. Windows are pairs of symbols, the score of the pair ij is u_i + u_{m+j}.
"""

import json
from pathlib import Path

from mpmath import mp, mpf

mp.dps = 60
STEP = mpf(1) / 6
LENGTHS = [1, 7, 10**4, 10**9, 10**12, 10**15]
THREE = [[0.75, 0.25, 0.0], [0.125, 0.625, 0.25], [0.5, 0.25, 0.25]]
SLOW = [[1 - 2**-10, 2**-10], [2**-9, 1 - 2**-9]]
V3 = [[1.0, -0.5, 0.25, 0.0, 2.0, -1.0], [0.0, 1.5, -1.0, 0.5, 0.25, 1.0]]
V2 = [[1.0, -0.5, 0.25, 0.5]]
U3, U2 = [0.5, -1.0, 0.75, 1.0, 0.25, -0.5], [0.5, -0.25, 1.0, 0.125]
CASES = [(THREE, U3, V3, scale) for scale in (2**-10, 2**-6, 1.0, 12.0)]
CASES += [(SLOW, U2, V2, scale) for scale in (2**-10, 1.0, 8.0)]


def times(x, y):
    return [[mp.fdot(row, column) for column in zip(*y, strict=True)] for row in x]


def plus(*terms):
    return [
        [sum(entries) for entries in zip(*rows, strict=True)] for rows in zip(*terms, strict=True)
    ]


def product(x, y):
    """Of matrices that carry derivatives: the matrix, one for each output, the second, and that of
    Σ w².
    """
    outputs = range(1, len(x) - 2)
    pairs = [times(x[i], y[i]) for i in outputs]
    firsts = [plus(times(x[i], y[0]), times(x[0], y[i])) for i in range(1, len(x))]
    firsts[-2] = plus(firsts[-2], *pairs, *pairs)
    return [times(x[0], y[0]), *firsts]


def solve(P, u, V, scale):
    m = len(P)
    P = [[mpf(p) for p in row] for row in P]
    stationary = mp.lu_solve(mp.matrix(P).T - mp.eye(m) + mp.ones(m), mp.ones(m, 1))
    scores = [[mpf(scale) * (mpf(u[i]) + mpf(u[m + j])) for j in range(m)] for i in range(m)]
    total = sum(stationary[i] * P[i][j] * mp.exp(scores[i][j]) for i in range(m) for j in range(m))
    b = [[mp.exp(s) / total for s in row] for row in scores]
    values = [[[mpf(row[i]) + mpf(row[m + j]) for j in range(m)] for i in range(m)] for row in V]
    limits = [
        sum(stationary[i] * P[i][j] * b[i][j] * v[i][j] for i in range(m) for j in range(m))
        for v in values
    ]
    v = [[[x - T for x in row] for row in value] for value, T in zip(values, limits, strict=True)]
    weights = [b[i][j] for i in range(m) for j in range(m) if P[i][j] > 0]

    def nodes(length):
        low = -mp.log(length) - mp.log(max(weights)) - 40
        high = mp.log(120) - mp.log(length) - mp.log(min(weights))
        return [low + STEP * k for k in range(int((high - low) / STEP) + 2)]

    def integrands(t, length):
        kept = [[P[i][j] * mp.exp(-t * b[i][j]) for j in range(m)] for i in range(m)]
        square = [[sum(each[i][j] ** 2 for each in v) for j in range(m)] for i in range(m)]
        along = [b, *([[b[i][j] * each[i][j] for j in range(m)] for i in range(m)] for each in v)]
        steps = [
            [[t * along[k][i][j] * kept[i][j] for j in range(m)] for i in range(m)]
            for k in range(1, len(along))
        ]
        last = [
            [[(t * b[i][j]) ** 2 * f[i][j] * kept[i][j] for j in range(m)] for i in range(m)]
            for f in (square, [[1] * m] * m)
        ]
        power = [kept, *steps, *last]
        zero = [[mpf(0)] * m]
        state = [[list(stationary)], *([zero] * (len(power) - 1))]
        for bit in range(length.bit_length()):
            if bit:
                power = product(power, power)
            if length >> bit & 1:
                state = product(state, power)
        return [sum(each[0]) for each in state[1:]]

    rows = []
    for length in LENGTHS:
        found = [integrands(mp.exp(tau), length) for tau in nodes(length)]
        *bias, mse, collision = (STEP * sum(column) for column in zip(*found, strict=True))
        rows.append(
            {
                "length": length,
                "bias": [float(x) for x in bias],
                "mse": float(mse),
                "collision": float(collision),
            }
        )
    return {
        "transition": [[float(p) for p in row] for row in P],
        "u": [scale * x for x in u],
        "V": V,
        "rows": rows,
    }


if __name__ == "__main__":
    path = Path(__file__).with_name("chain.json")
    path.write_text(json.dumps([solve(*case) for case in CASES], indent=1) + "\n")
