"""Settings of the study."""

from typing import Annotated, Literal

from pydantic import Field

from largeprompt.runs.settings import (
    Count,
    Distinct,
    Increasing,
    Number,
    Positive,
    Replicas,
    Seed,
    SomeFew,
    Two,
    TwoOrMore,
    Whole,
    settings,
)

Part = Literal["heads", "replacement", "temperature", "tables", "accuracy"]
Prefix = Annotated[Whole, Field(ge=64)]


@settings
class RealModelsConfig:
    """Which models read what, and which parts are run."""

    # parts of the study that are computed
    parts: Distinct[Part] = ("heads", "replacement", "temperature", "tables", "accuracy")
    language_model: str = "smollm2"  # a name that is fetched, or a folder
    table_model: str = "tabpfn"  # a name that is fetched, or a folder
    # texts by name, or files
    texts: Annotated[Distinct[str], Two] = ("novel 1", "novel 2", "novel 3", "manual", "code")
    # prefixes at which heads are measured
    lengths: Annotated[Increasing[Prefix], Two] = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    queries: Annotated[SomeFew, Field(le=8)] = 8  # queries in the last eighth of each prefix
    replaced_length: Prefix = 1024  # tokens of the texts on which heads are replaced
    recent: Increasing[Count] = (16, 64)  # last tokens that a state keeps
    # shares of all heads that are read from a state
    replaced_shares: Increasing[Annotated[Number, Field(gt=0, le=1)]] = (0.25, 0.5, 0.75)
    long_texts: Distinct[str] = ("novel 1", "manual")  # texts longer than the model was trained on
    longer: Increasing[Literal[2, 4, 8]] = (2,)  # lengths of these texts, in trained lengths
    # tasks of the drawn tables
    kinds: Distinct[Literal["two classes", "regression"]] = ("two classes", "regression")
    # labeled rows of a table
    rows: Increasing[Annotated[Whole, Field(ge=16)]] = (32, 64, 128, 256, 512, 1024, 2048, 4096)
    tables: Replicas = 8  # tables of each kind and length
    most_rows: Count = 8192  # labeled rows of these tables together, but two tables at least
    answered: Count = 32  # rows without a label
    columns: Annotated[Whole, Field(ge=1, le=20)] = 5  # columns of a table
    # public tables of scikit-learn
    sets: Distinct[Literal["iris", "wine", "breast cancer"]] = ("iris", "wine", "breast cancer")
    folds: TwoOrMore = 10  # folds of the cross-validation
    tolerance: Positive = 0.2  # relative error up to which a read-out is enough
    device: str = "cpu"  # where the models run
    seed: Seed = 0
