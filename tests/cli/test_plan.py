"""``largeprompt plan`` as its user types it."""

import json
import os
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
    mu, attention = (
        lp.Gaussian(torch.zeros(16, dtype=torch.float64), eye),
        lp.SoftmaxAttention(eye, eye),
    )
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
    (row,) = json.loads(
        run(
            "--score-variance", "0.4", "--dim", "2", "--tolerance", "0.1", "--law", law, "--json"
        ).output
    )
    kind = {
        "rademacher": lp.Rademacher,
        "uniform": lp.Uniform,
        "laplace": lp.Laplace,
        "sphere": lp.Sphere,
    }[law]
    eye = torch.eye(2, dtype=torch.float64)
    attention, z = lp.SoftmaxAttention(eye, eye), eye[1] * 0.4**0.5
    at, before = lp.finite_prompt(
        attention, kind(2), z, [row["length"], row["length"] - 1]
    ).mse.sqrt()
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
    assert row["length"] == int(
        lp.prompt_length(
            lp.SoftmaxAttention(eye, eye), mu, vectors[:, 1] * (0.4 / values[1]).sqrt(), 0.1
        )
    )


def test_a_random_query_agrees_with_the_library():
    (row,) = json.loads(
        run(
            "--score-variance", "1", "--dim", "3", "--tolerance", "0.1", "--random-query", "--json"
        ).output
    )
    eye = torch.eye(3, dtype=torch.float64)
    mu, attention = lp.Gaussian(0 * eye[0], eye), lp.SoftmaxAttention(eye, eye)
    mse = lp.query_average(
        attention, mu, lp.Gaussian(0 * eye[0], eye / 3), [row["length"], row["length"] - 1]
    ).mse.sqrt()
    assert float(mse[0]) <= 0.1 < float(mse[1])
    assert row["certified_length"] >= row["length"]
    assert row["regime"] is None
    title = run(
        "--score-variance", "1", "--dim", "3", "--tolerance", "0.5", "--random-query"
    ).output
    assert "random query, mean score variance 1" in " ".join(title.split())


def test_a_relative_tolerance_comes_with_its_scale(tmp_path):
    """|ΓUz| = √(4·2) for tokens N(0, 4) and a score variance of 2: what is needed absolutely is the
    tolerance times that.
    """
    np.savetxt(tmp_path / "c.txt", [[4.0]])
    options = [
        "--score-variance",
        "2",
        "--tolerance",
        "0.1",
        "--relative",
        "--covariance",
        str(tmp_path / "c.txt"),
    ]
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
            run(
                "--score-variance",
                "1",
                "--covariance",
                str(path),
                "--tolerance",
                "0.1",
                "--direction",
                d,
                "--json",
            ).output
        )[0]
        for d in ("strong", "weak")
    )
    assert strong["length"] > weak["length"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--score-variance", "-1", "--dim", "2", "--tolerance", "0.1"],
            "--score-variance: got -1",
        ),
        (["--score-variance", "1", "--dim", "0", "--tolerance", "0.1"], "--dim: got 0"),
        (["--score-variance", "1", "--dim", "2", "--tolerance", "0"], "--tolerance: got 0"),
        (
            ["--score-variance", "1", "--covariance", "missing.npy", "--tolerance", "0.1"],
            "--covariance: got missing.npy (No such file",
        ),
        (
            ["--score-variance", "1", "--dim", "2", "--tolerance", "0.1", "--law", "cauchy"],
            "cauchy",
        ),
        (
            ["--score-variance", "3", "--dim", "2", "--tolerance", "0.1", "--law", "laplace"],
            "allowed: below 2 for Laplace tokens, d = 2.",
        ),
        (
            [
                "--score-variance",
                "1",
                "--dim",
                "2",
                "--tolerance",
                "0.1",
                "--law",
                "sphere",
                "--random-query",
            ],
            "--random-query: got",
        ),
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


def test_dim_and_covariance_exclude_each_other():
    both = run("--score-variance", "1", "--dim", "3", "--covariance", "c.npy", "--tolerance", "0.1")
    assert both.exit_code == 2
    assert "Leave one of them out" in both.output


def test_alone_it_answers_for_a_head_as_networks_begin():
    rows = json.loads(run("--json").output)
    assert [row["tolerance"] for row in rows] == [0.3, 0.1, 0.03]
    for row in rows:
        words = ["--score-variance", "1", "--dim", "64", "--relative"]
        assert json.loads(run(*words, "--tolerance", str(row["tolerance"]), "--json").output) == [
            row
        ]
    assert "d = 64" in run().output


def test_huge_score_variances_are_answered_at_once():
    start = time.perf_counter()
    result = run("--score-variance", "1e5", "--dim", "3", "--tolerance", "0.01")
    assert time.perf_counter() - start < 2
    assert "> 10^15" in result.output
    assert "frozen" in result.output


@pytest.mark.parametrize("law", ["gaussian", "rademacher", "uniform", "laplace"])
def test_one_coordinate_stands_for_all_across_the_query(law, monkeypatch):
    """Many dimensions are two: the same errors at the same length as with every coordinate."""
    options = [
        "--score-variance",
        "0.5",
        "--dim",
        "12",
        "--tolerance",
        "0.1",
        "--law",
        law,
        "--json",
    ]
    (every,) = json.loads(run(*options).output)
    monkeypatch.setattr("largeprompt.cli.plan.MOST_ENTANGLED", 5)
    (two,) = json.loads(run(*options).output)
    kind = {
        "gaussian": lp.Gaussian,
        "rademacher": lp.Rademacher,
        "uniform": lp.Uniform,
        "laplace": lp.Laplace,
    }[law]
    eye = torch.eye(12, dtype=torch.float64)
    tokens = kind(0 * eye[0], eye) if law == "gaussian" else kind(12)
    truth = float(
        lp.finite_prompt(
            lp.SoftmaxAttention(eye, eye), tokens, eye[3] * 0.5**0.5, two["length"]
        ).mse.sqrt()
    )
    assert every["length"] == two["length"]
    assert every["rmse"] == pytest.approx(two["rmse"], rel=1e-12) == pytest.approx(truth, rel=1e-12)
    assert every["effective_tokens"] == pytest.approx(two["effective_tokens"], rel=1e-12)
    assert two["certified_length"] >= two["length"]


def test_a_large_covariance_of_gaussian_tokens_is_two_variances(tmp_path):
    rows = np.random.default_rng(0).standard_normal((6, 6))
    np.savetxt(tmp_path / "c.txt", matrix := rows @ rows.T)
    options = [
        "--score-variance",
        "1.5",
        "--covariance",
        str(tmp_path / "c.txt"),
        "--tolerance",
        "0.3",
        "--json",
    ]
    values, vectors = torch.linalg.eigh(torch.from_numpy(matrix))
    eye = torch.eye(6, dtype=torch.float64)
    mu, attention = lp.Gaussian(0 * eye[0], torch.from_numpy(matrix)), lp.SoftmaxAttention(eye, eye)
    for direction, index in (("strong", 5), ("weak", 0)):
        (row,) = json.loads(run(*options, "--direction", direction).output)
        z = vectors[:, index] * (1.5 / values[index]).sqrt()
        assert row["length"] == int(lp.prompt_length(attention, mu, z, 0.3))
        assert row["certified_length"] == int(lp.prompt_length(attention, mu, z, 0.3, "certified"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dim", "20000"], "59,118,272"),
        (["--dim", "10000000"], "2.956e+10"),
        (["--dim", "3000", "--law", "uniform"], "answered"),
        (["--dim", "2", "--tolerance", "1e308"], "1e+308"),
        (
            ["--dim", "1" + 21 * "0"],
            "--dim: got 1000000000000000000000; allowed: an integer from 1 to 1,000,000,000",
        ),
        (["--dim", "-" + 4000 * "9"], "--dim: got a negative integer of 4001 digits"),
        (
            ["--dim", "201", "--law", "sphere"],
            "allowed: an integer from 1 to 200. Larger ones would take minutes",
        ),
        (
            ["--dim", "201", "--random-query"],
            "allowed: an integer from 1 to 200. Larger ones would take minutes",
        ),
        (
            ["--dim", "4", "--law", "sphere", "--score-variance", "1e6"],
            "allowed: a positive number up to 10000",
        ),
    ],
)
def test_sizes_are_answered_at_once_or_refused(words, said):
    start = time.perf_counter()
    result = run("--score-variance", "2", "--tolerance", "0.05", *words)
    assert time.perf_counter() - start < 10
    answered = "tokens needed" in result.output
    assert result.exit_code == (0 if answered else 2)
    assert said in result.output or (answered and said == "answered")
    assert "Traceback" not in result.output


def test_files_that_are_no_files_or_promise_too_much(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    with (tmp_path / "huge.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
        )
    (tmp_path / "large.txt").write_bytes(b"")
    os.truncate(tmp_path / "large.txt", 2**27)  # without taking space
    (tmp_path / "long.txt").write_text("1\n" * 10_000)
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    np.savetxt(tmp_path / "wide.txt", np.eye(201))
    for name in ("pipe.txt", "huge.npy", "large.txt", "long.txt", "loop.txt", "/dev/zero"):
        result = run(
            "--score-variance", "1", "--covariance", str(tmp_path / name), "--tolerance", "0.1"
        )
        assert result.exit_code == 2, name
        assert "--covariance: got" in result.output
    for more in (["--law", "uniform"], ["--random-query"]):
        result = run(
            "--score-variance",
            "1",
            "--covariance",
            str(tmp_path / "wide.txt"),
            "--tolerance",
            "0.1",
            *more,
        )
        assert result.exit_code == 2
        assert "201 rows; allowed: at most 200" in result.output
