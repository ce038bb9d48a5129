"""Write finite_prompt.json: the law of attention over L tokens in 80-digit arithmetic.

Run ``python tests/reference/make_finite_prompt.py`` (mpmath; ten minutes on one core). It uses
neither the library nor its way: no cumulant generating function, no complex tilt. A law is a list
of atoms; a density becomes one by a quadrature rule. With s = u.x - log E e^{u.x}, t = e^tau,
phi(t) = E e^{-t e^s}, G_a[f] = t^a E[f(x) e^{a s - t e^s}] and the softmax weights w_l,

    E prod_{j<=n} sum_l w_l f_j(x_l) = sum over the partitions of {1..n} into k blocks B of
        L(L-1)..(L-k+1)/(n-1)! int phi^{L-k} prod_B G_{|B|}[prod_{j in B} f_j] dtau.

The f_j are 1, y = x - T and the entries of yy^T - Gamma, where T and Gamma are the mean and the
covariance of x under weights e^s. With S = sum w y: bias = E S, covariance = E SS^T - E S E S^T,
collision = E sum w^2 and, in one and two dimensions, jacobian = E (C - Gamma)^2, where C - Gamma =
sum w (yy^T - Gamma) - SS^T. Matrices are given by their upper triangle. Laws without a limit have
y = x - E x instead, and no jacobian.

Tilts, atoms and matrices are doubles, meant exactly. Finer rules, finer steps, wider ranges and
more digits change no array by more than 1e-19 of its largest entry (1e-17 for Student's t), and
short prompts of a few atoms, listed one by one, agree with it to the digits that it has.
"""

import bisect
import itertools
import json
from collections import Counter
from functools import reduce
from math import factorial, perm
from operator import mul
from pathlib import Path

import mpmath
from mpmath import mp, mpf

mp.dps = 80
LENGTHS = [1, 2, 10, 1000, 10**9, 10**15]
FEW, MANY = (mpf(1) / 22, mpf(10) ** -45), (mpf(1) / 10, mpf(10) ** -18)  # step and end of tau
REACH = 70  # -log of the error of a rule over a density
NOTHING = mpf(10) ** -40
SIGN = [(mpf(-1), mpf(1)), (mpf(1), mpf(1))]
QUARTIC = [mpmath.gamma(k / mpf(4)) for k in (1, 3, 5)]


# Quadrature rules over one coordinate, lists of (node, mass) up to a factor. At a tilt u they must
# resolve e^{-t e^{ux}}, which varies over 1/u and is bounded for abs(Im x) < pi/(2u).


def trapezoid(node, low, high, u):
    """The trapezoid rule for ``node``, a function that gives (x, mass) at a point of the grid."""
    step = min(mpf(1) / 8, mp.pi**2 / (REACH * abs(u)))
    return [node(step * j) for j in range(int(low / step), int(high / step) + 1)]


def uniform(u):
    """The Gauss-Legendre rule on (-end, end), for unit variance."""
    end = mpmath.sqrt(3)
    count = 6 + int(REACH / 2 / mpmath.asinh(mp.pi / (2 * end * abs(u))))
    rule = []
    for k in range(count):
        x = mpmath.cos(mp.pi * (k + mpf(3) / 4) / (count + mpf(1) / 2))
        for _ in range(7):
            p, q = mpf(1), x
            for n in range(2, count + 1):
                p, q = q, ((2 * n - 1) * x * q - (n - 1) * p) / n
            slope = count * (p - x * q) / (1 - x * x)
            x -= q / slope
        rule.append((end * x, 1 / ((1 - x * x) * slope**2)))
    return rule


def normal(u, mean=0, deviation=1):
    end = 14 + 2 * abs(u)
    return trapezoid(lambda x: (x, mpmath.npdf(x, mean, deviation)), -end, end, u)


def quartic(u):
    """Density ~ e^{-(x/a)^4}, of unit variance."""
    a = mpmath.sqrt(QUARTIC[0] / QUARTIC[1])
    return trapezoid(lambda x: (x, mpmath.exp(-((x / a) ** 4))), -6, 6, u)


def laplace(u):
    """x = log(1 + e^z) has no kink at 0; beyond 100, where T alone sees it, it grows faster."""

    def node(y):
        far = mpmath.exp((y - 100) / 8)
        z = y - mpmath.exp(-y) + far
        x = mpmath.log1p(mpmath.exp(z))
        slope = (1 + mpmath.exp(-y) + far / 8) / (1 + mpmath.exp(-z))
        return x, slope * mpmath.exp(-mpmath.sqrt(2) * x)

    left, right = (trapezoid(node, -5, 147 if tilted else 50, u) for tilted in (u < 0, u > 0))
    return [(-x, m) for x, m in left] + right


def log_normal(u):
    """e^{xi/2}, centered, of unit variance; e^{xi/2} = v log(1 + e^y), v its deviation."""
    mean = mpmath.exp(mpf(1) / 8)
    v = mean * mpmath.sqrt(mpmath.expm1(mpf(1) / 4))

    def node(y):
        z = mpmath.log1p(mpmath.exp(y))
        return z - mean / v, mpmath.npdf(2 * mpmath.log(v * z)) / (z * (1 + mpmath.exp(-y)))

    return trapezoid(node, -8, 900 if u > 0 else 600, u)


def at_rest(kurtosis):
    """Three atoms with the moments, up to the fifth, of a coordinate that is not tilted."""
    end, mass = mpmath.sqrt(kurtosis), 1 / (2 * mpf(kurtosis))
    return [(-end, mass), (mpf(0), 1 - 2 * mass), (end, mass)]


# Laws: (mass, token) of each atom, up to a factor.


def product(*rules):
    for choice in itertools.product(*rules):
        yield mpmath.fprod(m for _, m in choice), [x for x, _ in choice]


def independent(rule, kurtosis, u):
    return product(*(rule(entry) if entry else at_rest(kurtosis) for entry in u))


def image(u, matrix, offset):
    """A x + b for signs x."""
    for mass, signs in product(*[SIGN] * len(matrix[0])):
        yield mass, [mpmath.fdot(row, signs) + b for row, b in zip(matrix, offset, strict=True)]


def sphere(u):
    """Radius sqrt(d), tilted along the first axis; across it two points (d = 2) or four (d = 3)."""
    dim, rule = len(u), uniform(u[0])
    if dim == 2:
        count = 6 + int(REACH / 2 / mpmath.asinh(mp.pi / (2 * mpmath.sqrt(2) * abs(u[0]))))
        angles = [mp.pi * (j + mpf(1) / 2) / count for j in range(count)]
        rule = [(mpmath.sqrt(2) * mpmath.cos(angle), mpf(1)) for angle in angles]
    for x, mass in rule:
        for axis, side in itertools.product(range(1, dim), (-1, 1)):
            token = [x] + [mpf(0)] * (dim - 1)
            token[axis] = side * mpmath.sqrt(dim - x * x)
            yield mass, token


def mixture(u):
    """0.4 N(-1, 1/4) + 0.6 N(1/2, 1), tilted, and N(-1, 1/2) or N(1, 1/2) in the others."""
    rest = [(x / mpmath.sqrt(2), m) for x, m in at_rest(3)]
    for weight, mean, deviation, other in ((0.4, -1, 0.5, -1), (0.6, 0.5, 1, 1)):
        for mass, token in product(normal(u[0], mean, deviation), *[rest] * (len(u) - 1)):
            yield mpf(weight) * mass, token[:1] + [other + x for x in token[1:]]


def gaussian(u, mean, root):
    """N(mean, A A^T), A = ``root``: a normal coordinate along A^T u, and one at rest across it."""
    own = [mpmath.fdot(u, column) for column in zip(*root, strict=True)]
    size = mpmath.sqrt(mpmath.fdot(own, own))
    frame = [[entry / size for entry in own]]
    frame += [[-frame[0][1], frame[0][0]]] if len(u) == 2 else []
    for mass, z in product(normal(size), *[at_rest(3)] * (len(u) - 1)):
        turned = [mpmath.fdot(z, column) for column in zip(*frame, strict=True)]
        yield mass, [m + mpmath.fdot(row, turned) for m, row in zip(mean, root, strict=True)]


# Expectations, as {blocks: factor}; a block is the tuple of the functions that share a token.


def pairs(axes):
    return list(itertools.combinations_with_replacement(axes, 2))


def partitions(items):
    if not items:
        yield ()
        return
    first, *rest = items
    for parts in partitions(rest):
        yield ((first,), *parts)
        for i, part in enumerate(parts):
            yield (*parts[:i], (first, *part), *parts[i + 1 :])


def expectation(*terms):
    """A sum of E prod_j sum_l w_l f_j(x_l), each given by its sign and its functions."""
    found = Counter()
    for signed, functions in terms:
        for parts in partitions(functions):
            blocks = tuple(sorted(tuple(sorted(part)) for part in parts))
            found[blocks] += mpf(signed) / factorial(len(functions) - 1)
    return found


def questions(dim, jacobian):
    """Function 0 is 1, functions 1 to d are y, and the others are from yy^T - Gamma."""
    axes = range(1, dim + 1)
    entry = {pair: dim + k for k, pair in enumerate(pairs(axes), start=1)}
    entry |= {(j, i): k for (i, j), k in entry.items()}
    asked = [{((0, 0),): mpf(1)}, *(expectation((1, (i,))) for i in axes)]
    asked += [expectation((1, pair)) for pair in pairs(axes)]
    for i, j in pairs(axes) if jacobian else ():
        terms = [(1, (entry[i, k], entry[j, k])) for k in axes] + [(1, (i, j, k, k)) for k in axes]
        terms += [(-1, (entry[a, k], b, k)) for k in axes for a, b in ((i, j), (j, i))]
        asked.append(expectation(*terms))
    return asked


def integrate(asked, blocks_at, grid, last, lengths):
    """The expectations for each length; ``blocks_at`` gives every G at tau, and phi as G[()]."""
    sums = {length: [mpf(0)] * len(asked) for length in lengths}
    for tau, step in grid:
        G = blocks_at(tau)
        phi = G[()]
        if phi < last:
            break
        integrands = [Counter() for _ in asked]  # of each power of phi
        for integrand, terms in zip(integrands, asked, strict=True):
            for blocks, factor in terms.items():
                integrand[len(blocks)] += reduce(mul, (G[block] for block in blocks), factor)
        for length, row in sums.items():
            if length * (1 - phi) > 150:
                continue
            drawn = [step * perm(length, k) * phi ** max(length - k, 0) for k in range(5)]
            for i, integrand in enumerate(integrands):
                row[i] += sum(drawn[k] * value for k, value in integrand.items())
    return sums


def solve(u, atoms, limited, lengths):
    """The center that y is measured from, and the expectations for each length."""
    dim, atoms = len(u), list(atoms)
    total = mpmath.fsum(mass for mass, _ in atoms)
    scored = sorted((mpmath.fdot(u, x), mass / total, x) for mass, x in atoms)
    scores, masses, tokens = zip(*scored, strict=True)
    shift = mpmath.log(mpmath.fdot(masses, map(mpmath.exp, scores))) if limited else 0
    growth = [mpmath.exp(s - shift) for s in scores]
    tilted = list(map(mul, masses, growth)) if limited else masses
    columns = list(zip(*tokens, strict=True))
    center = [mpmath.fdot(tilted, column) for column in columns]
    y = [[x - c for x in column] for column, c in zip(columns, center, strict=True)]
    squares = [list(map(mul, y[i], y[j])) for i, j in pairs(range(dim))]
    gamma = [mpmath.fdot(tilted, square) for square in squares]
    entries = [[x - g for x in square] for square, g in zip(squares, gamma, strict=True)]
    functions = [[mpf(1)] * len(masses), *y, *entries]
    asked = questions(dim, jacobian=limited and dim <= 2)
    levels = sorted(set(growth))

    def summed(block):
        """A block over the atoms of each level, and its running sums without and with the level."""
        at = dict.fromkeys(levels, mpf(0))
        for i, (mass, g) in enumerate(zip(masses, growth, strict=True)):
            at[g] += reduce(mul, (functions[k][i] for k in block), mass * g ** len(block))
        parts = at.values(), map(mul, at.values(), levels)
        return list(at.values()), *([mpf(0), *itertools.accumulate(part)] for part in parts)

    sums = {block: summed(block) for block in {(), *(b for q in asked for each in q for b in each)}}

    def blocks_at(tau):
        """Atoms with t e^s < NOTHING keep 1 - t e^s, and those with t e^s > 150 nothing."""
        t = mpmath.exp(tau)
        low, high = (bisect.bisect_left(levels, end / t) for end in (NOTHING, 150))
        kept = [mpmath.exp(-t * g) for g in levels[low:high]]
        return {
            block: t ** len(block) * (once[low] - t * twice[low] + mpmath.fdot(kept, at[low:high]))
            for block, (at, once, twice) in sums.items()
        }

    step, last = FEW if len(levels) < 20 else MANY
    below = mpmath.log(lengths[-1]) + 55 if limited else scores[-1] + 60
    above = 6 - mpmath.log(levels[0])
    grid = ((step * j, step) for j in range(-int(below / step), int(above / step)))
    found = integrate(asked, blocks_at, grid, last, lengths[1:])
    alone = [mpmath.fdot(masses, values) for values in (*y, *squares)]
    full = mp.matrix(dim)
    for (i, j), g in zip(pairs(range(dim)), gamma, strict=True):
        full[i, j] = full[j, i] = g
    twice = [(full * full)[i, j] for i, j in pairs(range(dim))]
    return center, {1: [mpf(1), *alone, *twice][: len(asked)]} | found


def student(u, lengths):
    """Student's t with five degrees of freedom and unit variance, whose tokens reach very far.

    With z = ux + tau on a grid, phi is the mean of P(X < x) under e^{z - e^z}; tau = 5 sinh v.
    """
    small, step = min(mpf(1) / 8, mpmath.sqrt(3) * u[0] / 12), mpf(1) / 28
    constant = 8 / (3 * mp.pi * mpmath.sqrt(3))
    grid = [small * j for j in range(-int(75 / small), int(5 / small))]
    kernel = [(z, mpmath.exp(z), small * mpmath.exp(z - mpmath.exp(z))) for z in grid]

    def blocks_at(tau):
        G = Counter()
        for z, grown, weight in kernel:
            x = (z - tau) / u[0]
            near = 1 / (1 + x * x / 3)
            odd = near * (1 + near * 2 / 3) * x / mpmath.sqrt(3)
            mass = weight * constant * near**3 / u[0]
            G[()] += weight * (mpf(1) / 2 + (mpmath.atan(x / mpmath.sqrt(3)) + odd) / mp.pi)
            G[0, 0] += mass * grown
            G[(1,)] += mass * x
            G[1, 1] += mass * grown * x * x
        return G

    grid = [step * j for j in range(-int(20 / step), int(8 / step))]
    grid = [(5 * mpmath.sinh(v), 5 * step * mpmath.cosh(v)) for v in grid]
    found = integrate(questions(1, jacobian=False), blocks_at, grid, 0, lengths[1:])
    return [mpf(0)], {1: [mpf(1), mpf(0), mpf(1)]} | found


LAWS = {
    "rademacher": lambda u: product(*[SIGN] * len(u)),
    "log cosh": lambda u: product(SIGN),
    "bernoulli": lambda u: [(mpf(0.7), [mpf(0)]), (mpf(0.3), [mpf(1)])],
    "discrete": lambda u, atoms, weights: zip(map(mpf, weights), atoms, strict=True),
    "image": image,
    "sign and uniform": lambda u: product(SIGN, uniform(u[1])),
    "uniform": lambda u: independent(uniform, mpf(9) / 5, u),
    "laplace": lambda u: independent(laplace, 6, u),
    "quartic": lambda u: independent(quartic, QUARTIC[0] * QUARTIC[2] / QUARTIC[1] ** 2, u),
    "log-normal": lambda u: product(log_normal(u[0])),
    "sphere": sphere,
    "mixture": mixture,
    "gaussian": gaussian,
}

RARE = {"atoms": [[-1.0], [0.5], [12.0]], "weights": [0.25, 0.75 - 1e-9, 1e-9]}
RARER = {"atoms": [[-1.0], [0.5], [40.0]], "weights": [0.25, 0.75 - 1e-14, 1e-14]}
TURNED = {"matrix": [[0.75, -1.0, 0.25], [0.5, 0.5, -1.5]], "offset": [0.25, -5.0]}
PLANE = {"atoms": [[1.0, 0.0], [-1.0, 0.5], [0.25, 2.0]], "weights": [0.5, 0.25, 0.25]}
LINE = {"mean": [0.5], "root": [[1.5]]}
SKEWED = {"mean": [0.5, -1.0], "root": [[1.0, 0.0], [0.5, 2.0]]}
CASES = [  # law, its parameters, tilts
    ("rademacher", {}, [[0.5], [3.0], [10.0], [18.0], [30.0], [1e-3], [1e-8], [1e-11]]),
    ("rademacher", {}, [[0.7, -0.4], [10.0, -10.0], [18.0, 0.5], [30.0, 18.0], [6e-9, 8e-9]]),
    ("rademacher", {}, [[0.7, -0.4, 0.9], [18.0, 0.7, -0.4], [10.0, 18.0, -30.0]]),
    ("log cosh", {}, [[0.5], [10.0], [18.0], [1e-8]]),
    ("bernoulli", {}, [[0.5], [-2.0], [18.0], [-18.0], [1e-3]]),
    ("image", TURNED, [[0.5, -0.25], [6.0, 4.0], [6e-9, 8e-9]]),
    ("discrete", PLANE, [[0.5, 1.0], [20.0, -3.0]]),
    *(("discrete", {k: v[::order] for k, v in RARE.items()}, [[1.0], [2.0]]) for order in (1, -1)),
    *(("discrete", {k: v[::order] for k, v in RARER.items()}, [[0.5], [1.0]]) for order in (1, -1)),
    ("sign and uniform", {}, [[1.0, 0.5], [10.0, 0.5]]),
    ("uniform", {}, [[0.5], [2.0], [10.0], [1e-3], [1e-8], [1e-11]]),
    ("uniform", {}, [[0.5, 0.0], [0.4, -0.3], [1.0, 0.0, 0.0]]),
    ("laplace", {}, [[0.1], [0.5], [0.9], [1.2], [1e-8], [0.5, 0.0], [0.5, 0.0, 0.0]]),
    ("quartic", {}, [[0.5], [3.0], [1e-3], [0.5, 0.0]]),
    ("log-normal", {}, [[-0.5], [-3.0], [-1e-8], [0.5]]),
    ("student", {}, [[0.5], [1.0], [3.0]]),
    ("sphere", {}, [[0.5, 0.0], [2.0, 0.0], [12.0, 0.0], [1e-8, 0.0]]),
    ("sphere", {}, [[0.5, 0.0, 0.0], [2.0, 0.0, 0.0], [10.0, 0.0, 0.0]]),
    ("mixture", {}, [[0.5], [2.0], [1e-3], [0.5, 0.0], [2.0, 0.0], [1.0, 0.0, 0.0]]),
    ("gaussian", LINE, [[0.4], [2.0], [1e-8]]),
    ("gaussian", SKEWED, [[0.5, 0.25], [2.0, -0.5]]),
]


def text(numbers):
    return [mpmath.nstr(number, 20) for number in numbers]


def case(law, parameters, u):
    """What is stored of one law and tilt; the last length is left out where there is no limit."""
    exact, places = [mpf(entry) for entry in u], pairs(range(len(u)))
    limited = law != "student" and (law != "log-normal" or u[0] < 0)
    lengths = LENGTHS if limited else LENGTHS[:-1]
    if law == "student":
        center, found = student(exact, lengths)
    else:
        center, found = solve(exact, LAWS[law](exact, **parameters), limited, lengths)
    rows, start, end = [], len(u), len(u) + len(places)
    for length in lengths:
        collision, *rest = found[length]
        bias, second, jacobian = rest[:start], rest[start:end], rest[end:]
        covariance = [m - bias[i] * bias[j] for m, (i, j) in zip(second, places, strict=True)]
        rows.append([length, *map(text, ([collision], bias, covariance, jacobian))])
    given = {"law": law, "parameters": parameters, "u": u, "limited": limited}
    return given | {"center": text(center), "rows": rows}


def main():
    columns = json.dumps(["length", "collision", "bias", "covariance", "jacobian"])
    found = [json.dumps(case(law, given, u)) for law, given, tilts in CASES for u in tilts]
    lines = ",\n".join(found)
    table = f'{{"columns": {columns}, "cases": [\n{lines}\n]}}\n'
    Path(__file__).with_name("finite_prompt.json").write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()
