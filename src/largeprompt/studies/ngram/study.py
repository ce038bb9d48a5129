"""Q3: does the large-prompt picture hold for in-context Markov chains, whose tokens are dependent and not Gaussian?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import xarray as xr

from largeprompt.runs.study import Progress, Study
from largeprompt.studies.ngram.learning import risks, training
from largeprompt.studies.ngram.paths import controls, convergence, mixing, operator
from largeprompt.studies.ngram.rules import verdicts


@dataclasses.dataclass(frozen=True)
class NgramConfig:
    """Chains with Dirichlet rows; tokens are windows of order + 1 symbols, one-hot; a match with the query scores β."""

    cases: tuple[tuple[int, int], ...] = (
        (3, 1),
        (5, 1),
        (10, 1),
        (20, 1),
        (3, 2),
        (5, 2),
        (10, 2),
        (3, 3),
        (8, 3),
    )  # alphabet, order
    concentration: float = 1.0
    betas: tuple[float, ...] = (0.5, 2.0, 4.0)
    lengths: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    replicas: int = 4000
    exact_contexts: int = 30  # chains with at most so many contexts get the exact law for two queries
    exact_queries: int = 10  # and with at most so many for the final context too
    mixing_alphabet: int = 5
    mixing_betas: tuple[float, ...] = (0.0, 2.0, 4.0, 8.0)
    holdings: tuple[float, ...] = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98)
    mixing_replicas: int = 2000
    control_beta: float = 4.0
    control_replicas: int = 2000
    operator_betas: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0)
    operator_queries: int = 20  # so many contexts of each chain, by falling probability
    training_alphabets: tuple[int, ...] = (4, 3)  # at orders one and two
    training_chains: int = 8
    training_lengths: tuple[int, ...] = (32, 128, 512, 2048, 8192)
    training_replicas: int = 500
    until: float = 1e8
    times: int = 81
    tube_until: float = 100.0
    batches: int = 20
    risk_alphabet: int = 5
    risk_concentrations: tuple[float, ...] = (0.5, 1.0, 3.0)
    risk_chains: int = 400
    risk_replicas: int = 20
    risk_lengths: tuple[int, ...] = (32, 128, 512, 2048, 8192)
    risk_betas: tuple[float, ...] = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0)
    seed: int = 0


def cells(config: NgramConfig) -> list[str]:
    """The longest first: chains, mixing, controls, training, risks, and the limit operator."""
    chains = [f"chain {m} symbols, order {r}" for m, r in config.cases]
    trained = [f"training order {order}" for order in range(1, len(config.training_alphabets) + 1)]
    return [*trained, "mixing", *chains, *(f"risks {c:g}" for c in config.risk_concentrations), "controls", "operator"]


def compute(config: NgramConfig, cell: str, progress: Progress) -> xr.Dataset:
    """One cell; predictions come before paths are drawn in each."""
    what, _, rest = cell.partition(" ")
    if what == "chain":
        return convergence(config, [name for name in cells(config) if name.startswith("chain")].index(cell), progress)
    if what == "training":
        return training(config, int(rest.split()[-1]), progress)
    if what == "risks":
        index = [f"{c:g}" for c in config.risk_concentrations].index(rest)
        return risks(config, config.risk_concentrations[index], index, progress)
    return {"mixing": mixing, "controls": controls, "operator": operator}[what](config, progress)


def combine(config: NgramConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Chains, orders of training and concentrations stacked, the rest beside them."""
    names = [f"{m} symbols, order {r}" for m, r in config.cases]
    stacked = [
        xr.concat([parts[f"chain {name}"] for name in names], xr.Variable("case", names), combine_attrs="drop", join="outer"),
        _stack(parts, "training", "training_order"),
        _stack(parts, "risks", "concentration"),
        *(parts[name] for name in ("mixing", "controls", "operator")),
    ]
    data = xr.merge(stacked, combine_attrs="drop", compat="no_conflicts", join="outer")
    return data.assign(tube_until=config.tube_until, batches=config.batches)


def _stack(parts: Mapping[str, xr.Dataset], what: str, dimension: str) -> xr.Dataset:
    return xr.concat(
        [part for name, part in parts.items() if name.startswith(what)],
        dimension,
        combine_attrs="drop",
        join="outer",
        data_vars="all",
    )


STUDY = Study(
    "ngram",
    "In-context Markov chains: dependent tokens that are not Gaussian",
    "Does the large-prompt picture hold for in-context n-grams, and what replaces the linear operator?",
    "Paths of random chains are read by a head that scores a match of the context by β. The limit is a discrete tilt; the distance "
    "to it is predicted through the chain's fundamental matrix and, for chains with few contexts, known exactly at every length by "
    "transfer matrices. β is trained by gradient flow on the infinite prompt, on the exact risk of each "
    "length and on drawn prompts. The head is set beside the empirical n-gram, additive smoothing and the posterior mean.",
    NgramConfig,
    NgramConfig(
        cases=((3, 1), (10, 1), (3, 2), (3, 3)),
        lengths=(32, 128, 256, 512, 1024),
        replicas=1000,
        exact_contexts=10,
        exact_queries=3,
        mixing_alphabet=3,
        mixing_betas=(0.0, 2.0, 8.0),
        holdings=(0.0, 0.8, 0.95),
        mixing_replicas=1000,
        control_replicas=1000,
        operator_betas=(0.1, 1.0, 4.0, 12.0),
        operator_queries=5,
        training_alphabets=(3, 2),
        training_chains=1,
        training_lengths=(128, 512, 2048),
        training_replicas=500,
        times=25,
        batches=5,
        risk_concentrations=(1.0,),
        risk_chains=100,
        risk_lengths=(32, 128, 512),
        risk_betas=(0.0, 2.0, 4.0, 6.0, 8.0),
    ),
    cells,
    compute,
    combine,
    verdicts,
)
