"""``largeprompt audit`` as its user types it."""

import io
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from rich.console import Console
from typer.testing import CliRunner

from largeprompt.audit import Plan, parts
from largeprompt.audit.adapters import load, texts
from largeprompt.audit.study import STUDY
from largeprompt.audit.table import COLUMNS
from largeprompt.cli import audit
from largeprompt.cli.app import app
from largeprompt.runs.store import Run

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = [f"word{i}" for i in range(80)]
SMALL = ("--positions", "8", "--components", "2")


def run(*words):
    return CliRunner().invoke(app, ["audit", *map(str, words)])


@pytest.fixture(scope="module", autouse=True)
def here():
    """Cells are computed in this process, where transformers is loaded already; test_run has the
    worker processes.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "largeprompt.runs.executors.Pool",
            lambda workers, limit, modules: ThreadPoolExecutor(workers),
        )
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A small random GPT-2 with a tokenizer, and texts of 200, 90 and no words."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    sizes = {"vocab_size": 82, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 128}
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=1)
    )
    model.save_pretrained(folder / "gpt2")
    vocabulary = {word: i for i, word in enumerate(["<unk>", "<end>", *WORDS])}
    rule = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    rule.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=rule, unk_token="<unk>", eos_token="<end>"
    ).save_pretrained(folder / "gpt2")
    draw = np.random.default_rng(0)
    for name, count in (("long", 200), ("short", 90), ("one", 1)):
        (folder / f"{name}.txt").write_text(" ".join(draw.choice(WORDS, count)), encoding="utf-8")
    (folder / "empty.txt").write_text(" \n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def orders():
    """The orders in which heads were replaced for the curves."""
    return []


@pytest.fixture(scope="module")
def audited(place, orders):
    """Two texts, two lengths."""
    out = place / "runs"
    texts = ("--text", place / "long.txt", "--text", place / "short.txt")
    with pytest.MonkeyPatch.context() as patch:
        original = parts.replacement_curves
        watched = lambda model, inputs, order, *more, **options: (  # noqa: E731
            orders.append(list(order)) or original(model, inputs, order, *more, **options)
        )
        patch.setattr(parts, "replacement_curves", watched)
        return run(place / "gpt2", *texts, "--lengths", "40,90", *SMALL, "--out", out), out


def test_table_findings_and_page(audited):
    result, out = audited
    assert result.exit_code == 0, result.output
    for word in (
        "gpt2",
        "L0H0",
        "L1H2",
        "verdict",
        "Do the heads read only",
        "KL divergence",
        "report.html",
    ):
        assert word in result.output
    (folder,) = [path.parent for path in out.glob("*/report.html")]
    page = (folder / "report.html").read_text(encoding="utf-8")
    told = json.loads((folder / "answer.json").read_text())
    assert result.output.index("Replace") < result.output.index("verdict")
    assert page.index("Replace") < page.index("Every verdict")
    assert page.count("<tr><td>") == len(told["rows"]) == 12
    plan = Plan.load(folder / "heads.json")
    assert 0 < len(plan.heads) <= 6
    assert plan.kept >= 0.99
    assert "largeprompt audit" in page  # the command that makes it again
    assert "Which heads read only the moments" in page
    assert "not run" not in page  # an audit's page is not about the paper's claims
    assert page.count("<img") >= 4 or page.count("<figure") >= 4


def test_dataset_has_the_names_of_the_design(audited):
    _, out = audited
    (path,) = out.glob("*/dataset.nc")
    data = xr.open_dataset(path)
    assert {"layer", "head", "position", "length"} <= set(data.dims)
    assert {"score_variance", "effective_tokens", "affine_error", "mean_error", "regime"} <= set(
        data.data_vars
    )
    assert data.sizes["length"] == 2
    assert data.sizes["text"] == 2
    assert float(data.kl.sel(curve="audit").isel(replaced=-1)) > 0
    whole = Run.open(path.parent).dataset
    drawn = [each.draw(whole) for each in STUDY.drawable(whole)]
    assert len(drawn) == 4
    assert any("KL" in panel.get_ylabel() for figure in drawn for panel in figure.axes)


def test_every_variable_says_what_it_is(audited):
    _, out = audited
    (path,) = out.glob("*/dataset.nc")
    data = Run.open(path.parent).dataset
    for name, variable in data.variables.items():
        assert variable.attrs["long_name"], name
        assert variable.attrs["units"], name
    for name, values in (
        ("regime", "unknown linear"),
        ("head_finding", "not_judged moments"),
        ("chosen", "keep replace"),
    ):
        assert data[name].attrs["flag_meanings"].startswith(values)
        assert len(data[name].attrs["flag_values"]) == len(
            data[name].attrs["flag_meanings"].split()
        )
        assert set(np.unique(data[name])) <= set(data[name].attrs["flag_values"])
    assert {"tokens", "dtype", "budget"} <= set(data.attrs)


def test_terminal_page_json_and_dataset_say_the_same(audited, place, orders):
    """Savings, verdicts and the order, which is that of the replacement curves."""
    shown, out = audited
    (folder,) = [path.parent for path in out.glob("*/report.html")]
    told = json.loads((folder / "answer.json").read_text())
    texts = ("--text", place / "long.txt", "--text", place / "short.txt")
    found = json.loads(
        run(place / "gpt2", *texts, "--lengths", "40,90", *SMALL, "--out", out, "--json").stdout
    )
    assert found["answer"] == told["answer"]
    assert " ".join(told["answer"].split()) in " ".join(shown.output.split())
    data = Run.open(folder).dataset
    page = (folder / "report.html").read_text(encoding="utf-8")
    headings = told["headings"]
    assert {"saves", "cache"} <= set(headings) == set(told["meanings"])
    for row, cells in zip(found["heads"], told["rows"], strict=True):
        assert f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" in page
        here = data.sel(length=row["length"], layer=row["layer"], head=row["number"])
        at = dict(zip(headings, cells, strict=True))
        assert at["head"] == row["head"] == f"L{row['layer']}H{row['number']}"
        for heading, name in (("saves", "saved_operations"), ("cache", "saved_cache")):
            assert row[name] == pytest.approx(float(here[f"head_{name}"]))
            assert at[heading] == f"{row[name]:.0%}"
        assert int(at["order"]) == row["order"] == int(here.head_order)
        assert (row["chosen"], at["replace"]) == (
            (True, "yes") if int(here.chosen) else (False, "no")
        )
    ranked = [(row["layer"], row["number"]) for row in found["heads"] if row["length"] == 90]
    assert orders == [ranked]
    shown_rows = [
        line.split()[0]
        for line in shown.output.splitlines()
        if line.strip().endswith((" yes", " no"))
    ]
    assert shown_rows == [f"L{layer}H{head}" for layer, head in ranked]  # the longest length alone
    assert "6 more rows (shorter lengths too) are on the page" in " ".join(shown.output.split())


def test_a_second_run_computes_nothing_and_runs_lists_it(audited, place):
    _, out = audited
    texts = ("--text", place / "long.txt", "--text", place / "short.txt")
    (path,) = out.glob("*/dataset.nc")
    before = path.stat().st_mtime_ns
    again = run(place / "gpt2", *texts, "--lengths", "40,90", *SMALL, "--out", out, "--json")
    found = json.loads(again.stdout, parse_constant=pytest.fail)  # JSON has no NaN
    rows = found["heads"]
    assert "Scores are flat" in found["answer"]  # a random model
    assert [(row["length"], row["order"]) for row in rows] == [
        (length, order) for length in (90, 40) for order in range(1, 7)
    ]
    assert path.stat().st_mtime_ns == before
    assert {"verdict", "score_variance", "affine_error", "factor_4", "order", "chosen"} <= set(
        rows[0]
    )
    listed = CliRunner().invoke(app, ["runs", "--out", str(out)])
    assert "audit" in listed.output


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("gpt2", "--text", "empty.txt"), "is empty"),
        (("gpt2", "--text", "one.txt"), "at least two tokens"),
        (("gpt2", "--text", "none.txt"), "there is no file 'none.txt'"),
        (("gpt2", "--text", "short.txt", "--lengths", "100"), "Give a longer text"),
        (
            ("gpt2", "--text", "long.txt", "--text", "short.txt", "--lengths", "100"),
            "100, and the shortest text has 90 tokens",
        ),
        # beyond what the model reads, too: the numbers are the user's
        (("gpt2", "--text", "short.txt", "--lengths", "4096"), "4,096, and the text has 90 tokens"),
        (
            ("gpt2", "--text", "long.txt", "--lengths", "64", "--device", "meta"),
            "a device that PyTorch finds here",
        ),
        (("./no-such-folder", "--text", "long.txt"), "there is no folder"),
        (("gpt2", "--text", "long.txt", "--lengths", "ten"), "integers from 2 on"),
        (("gpt2", "--text", "long.txt", "--layers", "2"), "layers that attend: 0 to 1"),
        (("gpt2", "--text", "short.txt", "--device", "abacus"), "a device that PyTorch finds here"),
        (
            ("gpt2", "--text", "short.txt", "--dtype", "int8"),
            "float32, float64, bfloat16, float16, auto",
        ),
        (
            ("gpt2", "--text", "short.txt", "--attn-implementation", "any/kernel"),
            "allowed: sdpa or eager",
        ),
        (("./none.gguf", "--text", "short.txt"), "there is no file './none.gguf'"),
        (("no-such-folder/at-all", "--text", "long.txt"), "could not be loaded"),
        ((".", "--text", "long.txt"), "has no config.json"),
        (("gpt2", "--text", ""), "an empty name"),
        (("gpt2", "--text", "-"), "an empty standard input"),
        (("none.gguf", "--text", "short.txt"), "there is no file 'none.gguf'"),
        (("gpt2", "--text", "short.txt", "--budget", "2"), "less than or equal to 1"),
        (("gpt2", "--text", "short.txt", "--budget", "0"), "greater than 0"),
    ],
)
def test_bad_input_is_one_sentence(place, monkeypatch, words, answer):
    monkeypatch.chdir(place)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    result = run(*words, "--out", "elsewhere")
    assert result.exit_code != 0
    assert answer in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert not Path("elsewhere").exists()


def _altered(place, name, **changes):
    folder = place / name
    folder.mkdir(exist_ok=True)
    for file in (place / "gpt2").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def test_code_of_a_model_is_never_run(place):
    folder = _altered(place, "foreign", auto_map={"AutoModel": "mine.Model"})
    (folder / "mine.py").write_text("raise SystemExit('the code was run')")
    result = run(folder, "--text", place / "long.txt", "--out", place / "elsewhere")
    assert result.exit_code != 0
    assert "which is never run" in " ".join(result.output.split())


def test_a_tokenizer_of_another_model_is_refused(place):
    folder = _altered(place, "misfit", vocab_size=40)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config.from_pretrained(folder))
    model.save_pretrained(folder)
    result = run(folder, "--text", place / "short.txt", "--out", place / "misfits")
    assert result.exit_code != 0
    assert "do not belong together" in " ".join(result.output.split())


def test_pickled_weights_are_refused(place):
    folder = _altered(place, "pickled")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    result = run(folder, "--text", place / "long.txt", "--out", place / "elsewhere")
    assert result.exit_code != 0
    assert "safetensors only" in " ".join(result.output.split())


def test_missing_extra_is_named(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    result = run(place / "gpt2", "--text", place / "long.txt", "--out", place / "elsewhere")
    assert result.exit_code != 0
    assert "pip install 'largeprompt[models]'" in " ".join(result.output.split())


@pytest.fixture
def no_figures(monkeypatch):
    """Figures take longer than the numbers, and ``audited`` has them."""
    monkeypatch.setattr("largeprompt.runs.study.Study.drawable", lambda study, data: [])


@pytest.mark.usefixtures("no_figures")
def test_text_is_read_once_for_the_checks_and_text_and_model_once_for_both_cells(
    place, monkeypatch
):
    calls = []
    for module, name in ((texts, "_tokenizer"), (load, "_weights")):
        original = getattr(module, name)
        count = lambda *given, name=name, original=original, **more: (  # noqa: E731
            calls.append(name) or original(*given, **more)
        )
        monkeypatch.setattr(module, name, count)
    result = run(place / "gpt2", "--text", place / "short.txt", *SMALL, "--out", place / "counted")
    assert result.exit_code == 0, result.output
    assert calls == ["_tokenizer", "_tokenizer", "_weights"]


@pytest.mark.usefixtures("no_figures")
def test_chosen_layers_without_mixtures_or_replacement(place):
    words = ("--layers", "1", "--positions", "8", "--components", "none", "--no-replace", "--json")
    result = run(place / "gpt2", "--text", place / "short.txt", *words, "--out", place / "runs")
    rows = json.loads(result.stdout)["heads"]
    assert sorted(row["head"] for row in rows) == ["L1H0", "L1H1", "L1H2"]
    assert not [name for name in rows[0] if "mixture" in name]


@pytest.mark.usefixtures("no_figures")
def test_a_text_that_is_too_short_has_no_order(place):
    (place / "few.txt").write_text(" ".join(WORDS[:3]), encoding="utf-8")
    words = ("--positions", "3", "--components", "none", "--out", place / "few")
    result = run(place / "gpt2", "--text", place / "few.txt", *words)
    assert result.exit_code == 0, result.output
    assert "No head is judged" in result.output
    assert "too short to be judged" in " ".join(result.output.split())
    assert "in this order" not in " ".join(result.output.split())
    assert "Warning" not in result.output


FAST = ("--positions", "4", "--components", "none", "--no-replace")


@pytest.mark.usefixtures("no_figures")
def test_a_text_that_is_too_long_is_cut(place):
    cut = run(
        place / "gpt2",
        "--text",
        place / "long.txt",
        "--lengths",
        "64,100,500",
        *FAST,
        "--json",
        "--out",
        place / "runs",
    )
    assert [row["length"] for row in json.loads(cut.stdout)["heads"]] == [128] * 6 + [100] * 6 + [
        64
    ] * 6
    assert "text 1 of 1: 128 tokens" in cut.stderr  # line by line, where there is no terminal


def noted(model, text, **values):
    """What is said before the weights are loaded."""
    said = io.StringIO()
    audit._checked({"model": str(model), "texts": [str(text)]} | values, Console(file=said))
    return " ".join(said.getvalue().split())


def test_what_is_left_out_is_said_first(place):
    assert "length 500 is taken for 128, which is all that the model reads" in noted(
        place / "gpt2", place / "long.txt", lengths=(64, 100, 500)
    )
    assert "the text has 200 tokens, and the model reads at most 128: the rest is left out" in (
        noted(place / "gpt2", place / "long.txt")
    )
    sizes = {
        "vocab_size": 82,
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
    }
    sizes |= {
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "max_position_embeddings": 128,
    }
    both = transformers.BartForConditionalGeneration(
        transformers.BartConfig(**sizes, pad_token_id=1, eos_token_id=2, bos_token_id=0)
    )
    sizes = {
        "vocab_size": 82,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
    }
    kinds = {"layer_types": ["conv", "full_attention", "conv"], "num_key_value_heads": 1}
    hybrid = transformers.Lfm2ForCausalLM(transformers.Lfm2Config(**sizes, **kinds))
    for model, name, words in (
        (both, "bart", "its encoder is audited"),
        (hybrid, "lfm2", "layers 1 attend; layers 0, 2 do not and are left out"),
    ):
        folder = _altered(place, name)
        model.save_pretrained(folder)
        assert words in noted(folder, place / "short.txt")


@pytest.mark.usefixtures("no_figures")
def test_many_texts_and_standard_input(place):
    """A folder and JSON lines give the rows that separate files give; the token is used and not
    stored.
    """
    folder = place / "several"
    folder.mkdir()
    written = [(place / f"{name}.txt").read_text()[:400] for name in ("long", "short")]
    (folder / "a.txt").write_text(written[0], encoding="utf-8")
    (folder / "b.jsonl").write_text(json.dumps({"text": written[1]}) + "\n", encoding="utf-8")
    out = place / "many"
    whole = run(place / "gpt2", "--text", folder, *FAST, "--json", "--out", out)
    typed = CliRunner().invoke(
        app,
        [
            "audit",
            str(place / "gpt2"),
            "--text",
            "-",
            "--text",
            str(folder / "b.jsonl"),
            *FAST,
            "--json",
            "--out",
            str(out),
        ],
        input=written[0],
        env={"HF_TOKEN": "secret"},
    )
    assert whole.exit_code == typed.exit_code == 0, typed.output
    assert json.loads(typed.stdout) == json.loads(whole.stdout)
    (kept,) = (out / "texts").iterdir()
    assert kept.read_text(encoding="utf-8") == written[0]
    assert not [
        path for path in out.rglob("*.json") if "secret" in path.read_text(encoding="utf-8")
    ]


def test_help_begins_with_the_options_that_matter():
    words = (
        CliRunner().invoke(app, ["audit", "--help"], env={"COLUMNS": "100", "TERM": "dumb"}).output
    )
    places = [
        words.index(word)
        for word in (
            "--text",
            "--lengths",
            "--budget",
            "How closely",
            "--layers",
            "How the model is loaded",
        )
    ]
    assert places == sorted(places)
    assert "--dtype" in words[places[-1] :]


def test_cells_may_be_computed_elsewhere(place, tmp_path):
    """By any executor; one that is not there is named before the model is loaded twice."""
    words = (
        place / "gpt2",
        "--text",
        place / "short.txt",
        "--lengths",
        "64",
        "--components",
        "none",
        "--no-replace",
        "--json",
    )
    there = run(
        *words,
        "--out",
        tmp_path / "there",
        "--executor",
        "concurrent.futures:ThreadPoolExecutor",
        "--workers",
        2,
    )
    assert there.exit_code == 0, there.output
    assert len(json.loads(there.stdout)["heads"]) == 6
    wrong = run(*words, "--out", tmp_path / "wrong", "--executor", "remote")
    assert wrong.exit_code == 2
    assert "--executor: got 'remote'" in wrong.output


def test_eighty_columns_hold_the_table_whatever_replacing_saves():
    """Windows and whole layers save different shares, which are said below; nothing is cut off."""
    numbers = {name: 0.123 for _, name, form, _ in COLUMNS if form}
    numbers |= {"effective_tokens": 1234.0, "length": 1024, "chosen": True}
    rows = [
        numbers
        | {"order": layer, "head": f"L{layer}H31", "verdict": "mixtures not tried"}
        | {"saved_operations": layer / 60, "saved_cache": 1 - layer / 60}
        for layer in range(1, 30)
    ]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(audit._shown(rows, "some/model", 1024))
    text = console.export_text()
    assert "…" not in text
    assert "L29H31" in text
    assert "replacing a head saves 2% to 48% of its operations (counted)" in " ".join(text.split())
