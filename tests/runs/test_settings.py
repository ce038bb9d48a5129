"""Settings as they are typed: read into the declared types, refused with what is allowed, written
so that they are read again.
"""

import dataclasses
import itertools
import math
import shlex
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.settings import (
    AnyLength,
    Distinct,
    Increasing,
    Number,
    Positive,
    Some,
    Whole,
    config_of,
    configured,
    rerun,
    settings,
)
from largeprompt.runs.study import Part, Study
from largeprompt.studies import registry


@settings
class Config:
    dims: Some[Whole] = (2, 5)
    lengths: Some[float] = (30, 100)
    kinds: Some[str] = ("identity",)
    pair: tuple[int, float] = (1, 2.0)
    grid: tuple[tuple[int, int], ...] = ((1, 2),)
    count: Whole = 3
    rate: Number = 0.5
    name: str = "a"
    flag: bool = False
    limit: int | None = None
    mode: Literal["slow", "fast"] = "slow"


@settings
class SeededConfig:
    seed: int = 0


def study(config=Config, quick=Config(count=1)):  # noqa: B008
    return Study(
        "s",
        "",
        "",
        "",
        config,
        quick,
        parts=[Part("a", lambda config, progress: None)],
        rules=[],
        listed=True,
    )


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("dims=2", (2,)),
        ("dims=2,5,20", (2, 5, 20)),
        ("dims=[2, 5]", (2, 5)),
        ("dims= 2 , 1e6", (2, 1_000_000)),
        ("lengths=100,inf", (100.0, math.inf)),
        ("lengths=[100, Infinity]", (100.0, math.inf)),
        ("kinds=identity,condition 1e4", ("identity", "condition 1e4")),
        ("kinds=1e4", ("1e4",)),
        ('kinds=["a,b"]', ("a,b",)),
        ("pair=3,4", (3, 4.0)),
        ("grid=[[1, 2], [3, 4]]", ((1, 2), (3, 4))),
        ("count=10_000", 10_000),
        ("count=1e6", 1_000_000),
        (f"count={2**62 + 1}", 2**62 + 1),
        ("rate=1", 1.0),
        ("name=x=y", "x=y"),
        ("name=12", "12"),
        ('name="quoted"', "quoted"),
        ("flag=true", True),
        ("flag=False", False),
        ("limit=4", 4),
        ("limit=null", None),
        ("mode=fast", "fast"),
    ],
)
def test_values(word, value):
    found = getattr(configured(study(), [word]), word.partition("=")[0])
    assert found == value
    assert type(found) is type(value)
    if isinstance(value, tuple):
        assert [type(each) for each in found] == [type(each) for each in value]


@pytest.mark.parametrize(
    ("word", "given", "allowed"),
    [
        ("dims", "'dims'", "key=value"),
        ("=3", "'=3'", "key=value"),
        ("dim=3", "'dim=3'", "a setting of s: dims"),
        ("color=red", "'color=red'", "dims, lengths, kinds, pair, grid"),
        ("dims=2,x", "'2,x'", "list, each a whole number"),
        ("dims=2.5", "'2.5'", "list, each a whole number"),
        ("dims=", "''", "list, each a whole number"),
        ("dims=[]", "'[]'", "list, each a whole number"),
        ("dims=true", "'true'", "list, each a whole number"),
        ("pair=1", "'1'", "list of 2: whole number, number"),
        ("count=many", "'many'", "whole number"),
        ("count=inf", "'inf'", "whole number"),
        ("count=[1]", "'[1]'", "whole number"),
        ("rate=nan", "'nan'", "number"),
        ("rate=inf", "'inf'", "number"),
        ("rate=", "''", "number"),
        ("flag=yes please", "'yes please'", "true or false"),
        ("mode=medium", "'medium'", "one of slow, fast"),
        ("limit=x", "'x'", "whole number or null"),
    ],
)
def test_refusals_name_what_is_allowed(word, given, allowed):
    with pytest.raises(InvalidArgumentError) as caught:
        configured(study(), [word])
    assert "--set" in str(caught.value)
    assert given in str(caught.value)
    assert allowed in str(caught.value)


def test_same_key_twice():
    with pytest.raises(InvalidArgumentError, match="--set dims: got two values"):
        configured(study(), ["dims=2", "dims=5"])


def test_quick_is_the_base():
    assert configured(study(), ["rate=2"], quick=True) == Config(count=1, rate=2.0)


def test_seed():
    seeded = study(SeededConfig, SeededConfig())
    assert configured(seeded, [], seed=7).seed == 7
    with pytest.raises(
        InvalidArgumentError, match=r"--seed: got 7; allowed: no seed for s, which draws nothing"
    ):
        configured(study(), [], seed=7)
    with pytest.raises(InvalidArgumentError, match="two values"):
        configured(seeded, ["seed=1"], seed=7)


def test_value_equal_to_the_default_is_the_default():
    """30.0 typed over 30 is the same setting, with the same JSON."""
    assert repr(configured(study(), ["lengths=30,100"])) == repr(Config())


text = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=8)


@given(
    st.builds(
        Config,
        dims=st.lists(st.integers(), min_size=1).map(tuple),
        lengths=st.lists(st.floats(allow_nan=False), min_size=1).map(tuple),
        kinds=st.lists(text, min_size=1).map(tuple),
        rate=st.floats(allow_nan=False, allow_infinity=False),
        name=text,
        flag=st.booleans(),
        limit=st.none() | st.integers(),
    ),
    st.booleans(),
)
def test_rerun_is_read_as_the_same_config(config, quick):
    words = shlex.split(rerun(study(), config, quick))
    assert words[:3] == ["largeprompt", "run", "s"]
    assert ("--quick" in words[:4]) == quick
    settings = [word for before, word in itertools.pairwise(words) if before == "--set"]
    assert configured(study(), settings, quick=quick) == config


def test_rerun_reads_well():
    assert rerun(study(), Config(dims=(2, 7), kinds=("identity", "toeplitz")), False) == (
        "largeprompt run s --set dims=2,7 --set kinds=identity,toeplitz"
    )
    assert rerun(study(), Config(count=1), True) == "largeprompt run s --quick"


@settings
class RangedConfig:
    steps: Some[Positive] = (1.0,)


def test_ranges_are_checked_where_the_config_is_made():
    """From the command, from Python and from a stored run alike, before anything is computed."""
    ranged = study(RangedConfig, RangedConfig())
    with pytest.raises(
        InvalidArgumentError, match=r"--set steps: got '1,-2'.*greater than 0, entry 2"
    ):
        configured(ranged, ["steps=1,-2"])
    with pytest.raises(InvalidArgumentError, match=r"steps: got \[0\]"):
        config_of(ranged, {"steps": [0]})
    with pytest.raises(ValueError, match="greater than 0"):
        RangedConfig(steps=(-1.0,))
    with pytest.raises(InvalidArgumentError, match="color"):
        config_of(ranged, {"color": 1})


def test_sizes_have_an_end_that_is_said():
    """In every study, for every setting that is a dimension, and for counts."""
    found = set()
    for name in registry.names():
        asked = registry.study(name)
        for field in dataclasses.fields(asked.config):
            if field.name.endswith(("dim", "dims")):
                with pytest.raises(
                    InvalidArgumentError, match=f"--set {field.name}: got '1000000'"
                ):
                    configured(asked, [f"{field.name}=1000000"])
                found.add((name, field.name))
    assert len(found) > 20
    with pytest.raises(InvalidArgumentError, match=r"up to 1,000: one matrix takes 7\.45e\+03 GiB"):
        configured(registry.study("limit"), ["dims=1000000"], quick=True)
    with pytest.raises(InvalidArgumentError, match="--set points: got '1000000'"):
        configured(registry.study("convergence"), ["points=1000000"])
    with pytest.raises(InvalidArgumentError, match="alphabet to the power of order is at most 100"):
        configured(registry.study("dependent"), ["cases=[[100, 3]]"])


@settings
class GridConfig:
    names: Distinct[str] = ("a", "b")
    lengths: Increasing[Whole] = (1, 2)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"names": ("a", "a")}, "each entry once"),
        ({"lengths": (2, 1)}, "increasing order"),
        ({"lengths": ()}, "at least 1 item"),
    ],
)
def test_entries_that_do_not_fit_together_are_refused(values, words):
    with pytest.raises(ValueError, match=words):
        GridConfig(**values)


@settings
class LengthConfig:
    lengths: Some[AnyLength] = (10, math.inf)


@pytest.mark.parametrize("text", ["2.5", "1e17", "0", "-5", "nan", "true", "10,x"])
def test_lengths_are_whole_or_infinite(text):
    with pytest.raises(InvalidArgumentError, match="lengths"):
        configured(study(LengthConfig, LengthConfig()), [f"lengths={text}"])
    assert configured(study(LengthConfig, LengthConfig()), ["lengths=7,1e3,inf"]).lengths == (
        7,
        1000,
        math.inf,
    )
