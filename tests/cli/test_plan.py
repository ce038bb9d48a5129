"""``largeprompt plan`` as its user types it."""

import json
import time

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import largeprompt as lp
from largeprompt.cli.app import app


def run(*words):
    return CliRunner().invoke(app, ["plan", *words])


def test_json_agrees_with_the_library():
    result = run("--score-variance", "2", "--dim", "16", "--tolerance", "0.05", "--json")
    (row,) = json.loads(result.output)
    eye = torch.eye(16, dtype=torch.float64)
    mu, attention = lp.Gaussian(torch.zeros(16, dtype=torch.float64), eye), lp.SoftmaxAttention(eye, eye)
    z = torch.zeros(16, dtype=torch.float64)
    z[3] = 2**0.5
    assert row["length"] == int(lp.prompt_length(attention, mu, z, 0.05)) == 53084
    assert row["certified_length"] == int(lp.prompt_length(attention, mu, z, 0.05, "certified"))
    assert row["regime"] == "linear"


def test_table_has_a_row_for_each_tolerance():
    result = run("--score-variance", "2", "--dim", "4", "--tolerance", "0.5", "--tolerance", "0.1")
    assert result.exit_code == 0
    for word in ("length", "certified", "regime", "effective", "linear", "0.5", "0.1"):
        assert word in result.output


@pytest.mark.parametrize("law", ["rademacher", "uniform", "laplace", "sphere"])
def test_other_laws_agree_with_the_library(law):
    (row,) = json.loads(run("--score-variance", "0.4", "--dim", "2", "--tolerance", "0.1", "--law", law, "--json").output)
    kind = {"rademacher": lp.Rademacher, "uniform": lp.Uniform, "laplace": lp.Laplace, "sphere": lp.Sphere}[law]
    eye = torch.eye(2, dtype=torch.float64)
    attention, z = lp.SoftmaxAttention(eye, eye), eye[1] * 0.4**0.5
    at, before = lp.finite_prompt(attention, kind(2), z, [row["length"], row["length"] - 1]).mse.sqrt()
    assert float(at) <= 0.1 < float(before)
    assert row["certified_length"] >= row["length"]
    assert row["rmse"] == pytest.approx(float(at))


def test_other_laws_with_a_covariance(tmp_path):
    path = tmp_path / "c.txt"
    np.savetxt(path, [[2.0, 0.6], [0.6, 1.0]])
    options = ["--score-variance", "0.4", "--covariance", str(path), "--tolerance", "0.1", "--json"]
    (row,) = json.loads(run(*options, "--law", "uniform").output)
    covariance = torch.tensor([[2.0, 0.6], [0.6, 1.0]], dtype=torch.float64)
    values, vectors = torch.linalg.eigh(covariance)
    mu = lp.Uniform(2).map(vectors @ torch.diag(values.sqrt()) @ vectors.mT)
    eye = torch.eye(2, dtype=torch.float64)
    assert row["length"] == int(lp.prompt_length(lp.SoftmaxAttention(eye, eye), mu, vectors[:, 1] * (0.4 / values[1]).sqrt(), 0.1))


def test_a_random_query_agrees_with_the_library():
    (row,) = json.loads(run("--score-variance", "1", "--dim", "3", "--tolerance", "0.1", "--random-query", "--json").output)
    eye = torch.eye(3, dtype=torch.float64)
    mu, attention = lp.Gaussian(0 * eye[0], eye), lp.SoftmaxAttention(eye, eye)
    mse = lp.query_average(attention, mu, lp.Gaussian(0 * eye[0], eye / 3), [row["length"], row["length"] - 1]).mse.sqrt()
    assert float(mse[0]) <= 0.1 < float(mse[1])
    assert row["certified_length"] >= row["length"]
    assert row["regime"] is None
    title = run("--score-variance", "1", "--dim", "3", "--tolerance", "0.5", "--random-query").output
    assert "random query, mean score variance 1" in " ".join(title.split())


def test_a_relative_tolerance_comes_with_its_scale(tmp_path):
    """|ΓUz| = √(4·2) for tokens N(0, 4) and a score variance of 2: what is needed absolutely is the tolerance times that."""
    np.savetxt(tmp_path / "c.txt", [[4.0]])
    options = ["--score-variance", "2", "--tolerance", "0.1", "--relative", "--covariance", str(tmp_path / "c.txt")]
    (row,) = json.loads(run(*options, "--json").output)
    assert row["relative"] is True
    assert row["scale"] == pytest.approx(8**0.5)
    assert 0.0999 < row["rmse"] / row["scale"] <= 0.1
    assert f"{row['rmse'] / row['scale']:.4g}" in run(*options).output
    (absolute,) = json.loads(run(*options[:4], "--dim", "1", "--json").output)
    assert (absolute["relative"], absolute["scale"]) == (False, 1.0)


def test_out_of_reach_says_so():
    result = run("--score-variance", "60", "--dim", "4", "--tolerance", "0.01")
    assert result.exit_code == 0
    assert "> 10^15" in result.output
    assert "not within 10^15 tokens" in result.output


@pytest.mark.parametrize("ending", ["npy", "csv", "txt"])
def test_covariance_from_a_file(tmp_path, ending):
    matrix, path = np.diag([4.0, 1.0]), tmp_path / f"covariance.{ending}"
    if ending == "npy":
        np.save(path, matrix)
    else:
        np.savetxt(path, matrix, delimiter="," if ending == "csv" else " ")
    strong, weak = (
        json.loads(
            run("--score-variance", "1", "--covariance", str(path), "--tolerance", "0.1", "--direction", d, "--json").output
        )[0]
        for d in ("strong", "weak")
    )
    assert strong["length"] > weak["length"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--score-variance", "2", "--tolerance", "0.1"], "exactly one of them"),
        (["--score-variance", "-1", "--dim", "2", "--tolerance", "0.1"], "--score-variance: got -1"),
        (["--score-variance", "1", "--dim", "0", "--tolerance", "0.1"], "--dim: got 0"),
        (["--score-variance", "1", "--dim", "2", "--tolerance", "0"], "--tolerance: got 0"),
        (
            ["--score-variance", "1", "--covariance", "missing.npy", "--tolerance", "0.1"],
            "--covariance: got missing.npy (No such file",
        ),
        (["--score-variance", "1", "--dim", "2"], "Missing option"),
        (["--score-variance", "1", "--dim", "2", "--tolerance", "0.1", "--law", "cauchy"], "cauchy"),
        (
            ["--score-variance", "3", "--dim", "2", "--tolerance", "0.1", "--law", "laplace"],
            "allowed: below 2 for Laplace tokens, d = 2.",
        ),
        (["--score-variance", "1", "--dim", "2", "--tolerance", "0.1", "--law", "sphere", "--random-query"], "--random-query: got"),
    ],
)
def test_bad_options_exit_with_two_and_one_sentence(words, message):
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_indefinite_file_is_refused(tmp_path):
    path = tmp_path / "c.txt"
    np.savetxt(path, [[1.0, 2.0], [2.0, 1.0]])
    result = run("--score-variance", "1", "--covariance", str(path), "--tolerance", "0.1")
    assert result.exit_code == 2
    assert "indefinite" in result.output


@pytest.mark.parametrize(
    "content",
    [
        np.zeros((2, 2)),
        np.ones((2, 2), complex),
        np.ones((2, 2, 2)),
        np.array(1.0),
        np.array([["a", "b"], ["c", "d"]]),
        np.ones((2, 3)),
    ],
    ids=["zero", "complex", "three axes", "number", "text", "not square"],
)
def test_files_that_are_no_covariance(tmp_path, content):
    path = tmp_path / "c.npy"
    np.save(path, content)
    result = run("--score-variance", "1", "--covariance", str(path), "--tolerance", "0.1")
    assert result.exit_code == 2
    assert "--covariance: got" in result.output


@pytest.mark.parametrize("name", ["empty.npy", "empty.txt", "[bold]x.txt", "[/red]x.txt"])
def test_empty_and_oddly_named_files(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    result = run("--score-variance", "1", "--covariance", str(path), "--tolerance", "0.1")
    assert result.exit_code == 2
    assert "--covariance: got" in result.output
    assert name.split("/")[-1] in result.output


def test_both_or_neither_of_dim_and_covariance_get_their_own_advice():
    both = run("--score-variance", "1", "--dim", "3", "--covariance", "c.npy", "--tolerance", "0.1")
    assert "Leave one of them out" in both.output
    assert "--dim 16" not in both.output
    assert "--dim 16" in run("--score-variance", "1", "--tolerance", "0.1").output


def test_huge_score_variances_are_answered_at_once():
    start = time.perf_counter()
    result = run("--score-variance", "1e5", "--dim", "3", "--tolerance", "0.01")
    assert time.perf_counter() - start < 2
    assert "> 10^15" in result.output
    assert "frozen" in result.output
