"""The trained transformers: the model against slow references, the theory against samples, the rules both ways."""

import dataclasses
import functools
import math

import numpy as np
import pytest
import torch
import xarray as xr

import largeprompt as lp
from largeprompt.errors import InvalidArgumentError
from largeprompt.report.catalogue import figures
from largeprompt.runs.study import quiet
from largeprompt.runs.style import house_style
from largeprompt.studies.trained.rules import allowed, share_interval, verdicts, z_scores
from largeprompt.studies.trained.study import STUDY, TrainedConfig, _Trial, cells, compute
from largeprompt.studies.trained.theory import common_optimum, own_moment_risk, predictions, regression
from largeprompt.studies.trained.transformer import Architecture, StackedTransformer, reading_mask, train

SMALL = TrainedConfig(
    models=("attention 1x1", "attention 1x2", "blocks 2x1", "shuffled blocks 1x1"),
    dim=1,
    training_lengths=(16, 32),
    test_lengths=(16, 32),
    width=8,
    runs=2,
    batch=32,
    queries=4,
    attention_steps=400,
    attention_rate=0.02,
    blocks_steps=100,
    checkpoints=3,
    test_prompts=300,
    audit_prompts=16,
    points=512,
)


@functools.cache
def small():
    return STUDY.run(SMALL)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def tokens(runs, batch, length, queries, inputs, seed=1):
    found = torch.randn(runs, batch, length + queries, inputs, generator=generator(seed))
    found[:, :, length:, -1] = 0
    return found


def test_who_reads_whom():
    mask = reading_mask(3, [1, 3])
    assert mask.shape == (1, 1, 5, 3)
    assert mask[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1]]


def test_one_bare_head_is_the_librarys_softmax_attention():
    model = StackedTransformer(Architecture("attention", 1, 1, 3), 2, generator())
    prompt = tokens(2, 4, 6, 2, 3)
    with torch.no_grad():
        found = model(prompt, reading_mask(6, [4, 6])).double()
    U, V = model.single_layer()
    wide = prompt.double()
    for run in range(2):
        attention = lp.SoftmaxAttention(U[run], V[run])
        for text in range(4):
            for query, length in enumerate((4, 6)):
                expected = attention(lp.Empirical(wide[run, text, :length]), wide[run, text, 6 + query])
                assert float(found[run, text, query]) == pytest.approx(float(expected), abs=2e-5)


@pytest.mark.parametrize("kind", ["attention", "blocks"])
def test_a_query_of_a_prefix_sees_a_prompt_of_that_length(kind):
    model = StackedTransformer(Architecture(kind, 3, 2, 4, 8), 1, generator())
    prompt = tokens(1, 5, 9, 2, 4)
    with torch.no_grad():
        both = model(prompt, reading_mask(9, [4, 9]))
        short = model(torch.cat([prompt[:, :, :4], prompt[:, :, 9:10]], 2), reading_mask(4, [4]))
        changed = prompt.clone()
        changed[:, :, 4:9] += 1.0
        after = model(changed, reading_mask(9, [4, 9]))
    torch.testing.assert_close(both[..., :1], short, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(both[..., :1], after[..., :1], atol=2e-5, rtol=1e-4)
    assert float((both[..., 1] - after[..., 1]).abs().max()) > 1e-3


def reference(model, run, prompt, prefixes):
    """The blocks one query and one head at a time, float64."""
    shape = model.architecture
    get = {name: each[run].detach().double() for name, each in model.parameters.items()}

    def norm(x, name):
        x = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, correction=0) + 1e-5)
        return x * get[f"{name}.gain"] + get[f"{name}.shift"]

    stream = prompt.double() @ get["embed"] + get["embed.bias"]  # (rows, width)
    length = len(prompt) - len(prefixes)
    for i in range(shape.layers):
        source, new = norm(stream, f"{i}.before"), []
        for row in range(len(stream)):
            seen = source[: row + 1 if row < length else prefixes[row - length]]
            parts = []
            for head in range(shape.heads):
                part = slice(head * shape.head_width, (head + 1) * shape.head_width)
                query, key, value = (each[:, part] for each in get[f"{i}.read"].chunk(3, -1))
                weights = torch.softmax(seen @ key @ (source[row] @ query) / math.sqrt(shape.head_width), 0)
                parts.append(weights @ (seen @ value))
            new.append(stream[row] + torch.cat(parts) @ get[f"{i}.write"])
        stream = torch.stack(new)
        hidden = torch.nn.functional.gelu(norm(stream, f"{i}.between") @ get[f"{i}.up"] + get[f"{i}.up.bias"])
        stream = stream + hidden @ get[f"{i}.down"] + get[f"{i}.down.bias"]
    return (norm(stream, "last") @ get["answer"] + get["answer.bias"])[length:, 0]


def test_blocks_of_every_run_agree_with_a_slow_reference():
    model = StackedTransformer(Architecture("blocks", 2, 2, 3, 8), 3, generator())
    draw = generator(5)
    for each in model.parameters.values():  # gains and biases too
        each.data += 0.3 * torch.randn(each.shape, generator=draw)
    prompt = tokens(3, 2, 5, 2, 3)
    with torch.no_grad():
        found = model(prompt, reading_mask(5, [3, 5]))
    for run in range(3):
        for text in range(2):
            expected = reference(model, run, prompt[run, text], [3, 5])
            torch.testing.assert_close(found[run, text].double(), expected, atol=5e-5, rtol=1e-4)


def test_runs_train_apart():
    """A run trains as it would alone: neither its neighbours' losses nor their gradients reach it."""

    def trained(runs):
        model = StackedTransformer(Architecture("blocks", 1, 1, 3, 4), 2, generator())
        model.runs = len(runs)
        model.parameters = {name: each.detach()[runs].clone().requires_grad_() for name, each in model.parameters.items()}
        stream = generator(3)

        def draw():
            prompt = torch.randn(2, 4, 6, 3, generator=stream)
            return prompt[runs], 40 * prompt[runs, :, 5:, 0]  # long gradients: each run's own is shortened

        train(model, draw, reading_mask(5, [5]), steps=3, learning_rate=0.1, watch=lambda step: None)
        return model.parameters

    both, second = trained([0, 1]), trained([1])
    for name, each in second.items():
        torch.testing.assert_close(both[name][1:], each, atol=1e-5, rtol=1e-4)


def test_training_watches_every_step_and_learns():
    model = StackedTransformer(Architecture("attention", 1, 1, 2), 1, generator())
    trial = _Trial(dataclasses.replace(SMALL, dim=1, runs=1), "attention 1x1", quiet)
    losses, seen = [], []

    def draw():
        prompt, _, noisy = trial.draw(trial.generators[2], 64, 8, 2)
        losses.append(float((model(prompt, mask) - noisy).detach().square().mean()))
        return prompt, noisy

    mask = reading_mask(8, [8, 8])
    train(model, draw, mask, steps=200, learning_rate=0.03, watch=seen.append)
    assert seen == list(range(201))
    assert np.mean(losses[-20:]) < 0.75 * np.mean(losses[:20])


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Architecture("mlp", 1, 1, 3), "kind"),
        (lambda: Architecture("blocks", 0, 1, 3), "layers"),
        (lambda: Architecture("blocks", 1, 3, 3, 32), "width"),
        (lambda: StackedTransformer(Architecture("attention", 1, 1, 3), 0, generator()), "runs"),
        (lambda: StackedTransformer(Architecture("attention", 1, 2, 3), 1, generator()).single_layer(), "architecture"),
        (
            lambda: StackedTransformer(Architecture("attention", 1, 1, 3), 1, generator())(
                tokens(2, 1, 4, 1, 3), reading_mask(4, [4])
            ),
            "tokens",
        ),
        (lambda: cells(dataclasses.replace(SMALL, models=("blocks 2",))), "models"),
        (lambda: cells(dataclasses.replace(SMALL, models=("blocks 0x1",))), "models"),
        (lambda: compute(dataclasses.replace(SMALL, device="cuda:99"), "attention 1x1", quiet), "device"),
        (lambda: compute(dataclasses.replace(SMALL, device="abacus"), "attention 1x1", quiet), "device"),
        (lambda: compute(dataclasses.replace(SMALL, queries=1), "attention 1x1", quiet), "queries"),
    ],
)
def test_bad_input_is_named(make, name):
    with pytest.raises(InvalidArgumentError, match=name):
        make()


def test_the_optimum_of_one_length_is_the_librarys_and_of_several_is_least():
    task = regression(2, 0.1)
    one = lp.isotropic_optimum(task, 16)
    risk, a, b = common_optimum(task, [16])
    assert (risk, a, b) == pytest.approx((one.risk, one.a, one.b), rel=1e-5)
    risk, a, b = common_optimum(task, [16, 32])

    def mean(a, b):
        point = (torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64))
        return np.mean([float(task.isotropic_risk(*point, length)[0]) for length in (16, 32)])

    assert risk == pytest.approx(mean(a, b), rel=1e-12)
    assert all(mean(a * x, b * y) > risk for x, y in ((1.02, 1), (0.98, 1), (1, 1.02), (1, 0.98)))
    assert risk > np.mean([lp.isotropic_optimum(task, length).risk for length in (16, 32)])


def test_predictions_are_in_order():
    data = predictions(regression(2, 0.1), [16, 32], [16, 32])
    assert bool((data.carried > data.softmax_optimum).all())
    assert bool((data.softmax_optimum > data.linear_optimum).all())
    assert bool((data.linear_optimum > data.bayes).all())
    assert bool((data.bayes > data.floor).all())
    assert float(data.zero_risk) == pytest.approx(0.55)


def test_risk_of_the_affine_read_out_against_drawn_prompts():
    task, length, count = regression(2, 0.1), 6, 200_000
    U = torch.tensor([[0.9, 0.2, 0.0], [-0.1, 0.7, 0.1], [0.2, 0.3, 0.0]], dtype=torch.float64)
    V = torch.tensor([[0.2, -0.1, 0.8]], dtype=torch.float64)
    expected = float(own_moment_risk(task, U[None], V[None], length, task.contexts(2**14, 0)))
    prompt, query, answer = task.sample(count, length, generator(2))
    mean = prompt.mean(1)
    centred = prompt - mean[:, None]
    tilt = (centred @ (query @ U.mT)[..., None]).squeeze(-1)
    read = (mean + (centred * tilt[..., None]).mean(1)) @ V.mT
    losses = ((read - answer) ** 2 / 2).squeeze(-1)
    assert abs(float(losses.mean()) - expected) < 5 * float(losses.std()) / math.sqrt(count)


def test_drawn_prompts_are_the_task_and_shuffled_ones_tell_nothing():
    trial = _Trial(dataclasses.replace(SMALL, dim=2, runs=1), "attention 1x1", quiet)
    for shuffled in (False, True):
        prompt, clean, noisy = (each[0].double() for each in trial.draw(generator(4), 40_000, 3, 1, shuffled))
        x, y = prompt[..., :2], prompt[..., 2]
        assert bool((y[:, 3:] == 0).all())
        labels, error = y[:, :3], 5 / math.sqrt(40_000)
        assert float((noisy - clean).var()) == pytest.approx(0.1, rel=2 * error)
        assert float(clean.var()) == pytest.approx(1.0, rel=4 * error)  # w ~ N(0, I/d), x ~ N(0, I)
        assert float(labels.var()) == pytest.approx(1.1, rel=4 * error)
        # E y_l (x_l·x_q) w·x_q = E (x_q·w)² = 1 where token and query share w
        link = labels[:, 0] * (x[:, 0] * x[:, 3]).sum(-1) * clean[:, 0]
        assert float(link.mean()) == pytest.approx(0.0 if shuffled else 1.0, abs=5 * float(link.std()) / 200)


def test_small_study_reaches_the_optimum_and_repeats():
    data = small()
    control = data.sel(model="attention 1x1")
    gap = control.exact_objective / control.objective_optimum - 1
    error = float((control.exact_objective_error / control.objective_optimum).max())
    assert error < 0.01
    assert -5 * error < float(gap.min()) <= float(gap.max()) < 0.05
    assert float(abs(z_scores(control, control.exact_risk)).max()) < allowed(control.risk.size)
    expected = control.exact_replaced - control.exact_risk.sel(length=32)
    change = control.replaced_risk.sel(replaced="affine") - control.replaced_risk.sel(replaced="softmax")
    assert float((abs(change - expected) / control.change_error.sel(replaced="affine")).max()) < 6
    for name in ("softmax", "affine", "affine at the query"):  # one layer: the query is all there is
        kept = control.replaced_risk.sel(replaced="affine" if name == "affine at the query" else name)
        np.testing.assert_allclose(control.replaced_risk.sel(replaced=name), kept, rtol=1e-6)
    last = data.isel(checkpoint=-1)
    assert set(np.unique(last.finding.sel(model="attention 1x2", layer=1))) <= {0, 1, 2, 3}
    assert bool(last.alpha.sel(model="attention 1x1", head=2).isnull().all())
    assert float(last.alpha.sel(model="attention 1x1", head=1, layer=1).mean()) == pytest.approx(
        float(data.carried_alpha.sel(length=32)), rel=0.15
    )
    again = compute(SMALL, "attention 1x1", quiet)
    np.testing.assert_array_equal(again.risk, control.risk.transpose(*again.risk.dims))


def outcomes(data):
    return {each.asked.split(",")[0].rstrip("?"): each.outcome for each in verdicts(data)}


def test_verdicts_name_what_they_ask_and_mark_their_controls():
    found = STUDY.judge(small())
    assert [each.control for each in found[-2:]] == [True, True]
    assert all(each.asked.endswith("?") and each.measured.endswith(".") for each in found)
    assert len({each.asked for each in found}) == len(found) == 16


def changed(**values):
    data = small().copy(deep=True)
    for name, value in values.items():
        data[name] = value(data).broadcast_like(data[name]).transpose(*data[name].dims)
    return data


@pytest.mark.parametrize(
    ("question", "changes", "outcome"),
    [
        ("Does a trained bare head have", {"risk": lambda d: d.risk}, "holds"),
        ("Does a trained bare head have", {"risk": lambda d: 1.5 * d.exact_risk.fillna(1.0)}, "fails"),
        ("Does training one bare head end", {"exact_objective": lambda d: 1.01 * d.objective_optimum}, "holds"),
        ("Does training one bare head end", {"exact_objective": lambda d: 1.03 * d.objective_optimum}, "fails"),
        ("Is the trained head at no length better", {"risk": lambda d: d.softmax_optimum}, "holds"),
        (
            "Is the trained head at no length better",
            {"risk": lambda d: 0.5 * d.softmax_optimum, "risk_error": lambda d: 0.01 * d.bayes},
            "fails",
        ),
        ("At which lengths does the risk", {"exact_risk": lambda d: d.carried}, "holds"),
        ("At which lengths does the risk", {"exact_risk": lambda d: d.carried + 0.3 * (d.length > 16)}, "holds in part"),
        ("At which lengths does the risk", {"exact_risk": lambda d: 2 * d.carried}, "fails"),
        ("Do 2 softmax heads", {"risk": lambda d: d.linear_optimum}, "holds"),
        ("Do 2 softmax heads", {"risk": lambda d: d.softmax_optimum}, "fails"),
        ("Do deeper models", {"risk": lambda d: d.bayes, "risk_error": lambda d: 0.01 * d.bayes}, "holds"),
        ("Do deeper models", {"risk": lambda d: d.softmax_optimum}, "fails"),
        ("Does the risk of deeper models", {"risk": lambda d: d.linear_optimum}, "holds in part"),
        ("Does the risk of deeper models", {"risk": lambda d: d.floor + 2 * (d.softmax_optimum - d.floor)}, "fails"),
        ("Does the affine read-out of", {"exact_replaced": lambda d: d.exact_replaced + 1.0}, "fails"),
        ("Is the affine error of trained heads", {"law_share": lambda d: d.law_share / d.law_share}, "holds"),
        ("Is the affine error of trained heads", {"law_share": lambda d: 0.3 * d.law_share / d.law_share}, "fails"),
        ("May every head", {"replaced_risk": lambda d: 1 + 0.05 * (d.replaced == "affine")}, "holds"),
        ("May every head", {"replaced_risk": lambda d: 1 + 0.2 * (d.replaced == "affine") * (d.layers > 1)}, "holds in part"),
        ("May every head", {"replaced_risk": lambda d: 1 + 0.2 * (d.replaced == "affine")}, "fails"),
        ("Is no model better than Bayes", {"risk": lambda d: d.bayes}, "holds"),
        ("Is no model better than Bayes", {"risk": lambda d: 0.3 * d.bayes, "risk_error": lambda d: 0.01 * d.bayes}, "fails"),
        ("Do untrained models", {"checkpoint_risk": lambda d: d.zero_risk}, "fails"),
        ("Do untrained models", {"checkpoint_risk": lambda d: 0.5 * d.zero_risk}, "holds"),
        ("Does a model trained on prompts without", {"risk": lambda d: d.zero_risk}, "fails"),
        ("Does a model trained on prompts without", {"risk": lambda d: 0.5 * d.zero_risk}, "holds"),
        ("Do trained heads of bare attention", {"alpha": lambda d: 0.2 * d.alpha / d.alpha}, "undecided"),
    ],
)
def test_rules_go_either_way(question, changes, outcome):
    found = [each for each in verdicts(changed(**changes)) if each.asked.startswith(question)]
    assert [each.outcome for each in found] == [outcome]


@pytest.mark.parametrize(("alpha", "outcome"), [(0.2, "holds"), (0.7, "fails")])
def test_regime_is_decided_by_enough_trainings(alpha, outcome):
    data = changed(alpha=lambda d: alpha * d.alpha / d.alpha)
    many = data.isel(run=np.tile([0, 1], 4))
    found = [each for each in verdicts(many) if each.asked.startswith("Do trained heads")]
    assert [each.outcome for each in found] == [outcome, outcome]


def test_audit_rule_compares_heads_one_by_one():
    for kept, lost, outcome in ((1.01, 2.0, "holds"), (2.0, 1.01, "fails")):
        data = changed(
            finding=lambda d: (d.finding * 0).where(d["head"] == 1, d.finding * 0 + 3),
            replaced_risk=lambda d, kept=kept, lost=lost: xr.where(
                d.replaced == "moments heads", kept, xr.where(d.replaced == "other heads", lost, 1.0)
            ),
        )
        found = [each for each in verdicts(data) if "only moments" in each.asked]
        assert found[0].outcome == outcome
    alike = changed(finding=lambda d: d.finding * 0)
    assert next(each for each in verdicts(alike) if "only moments" in each.asked).outcome == "undecided"


def test_share_interval_is_clopper_and_pearsons():
    assert share_interval(xr.DataArray([1.0] * 4)) == pytest.approx((1.0, 0.025**0.25, 1.0))
    assert share_interval(xr.DataArray([0.0] * 4)) == pytest.approx((0.0, 0.0, 1 - 0.025**0.25))
    mean, low, high = share_interval(xr.DataArray([[0.5, 1.0], [0.0, 0.5]]))
    assert mean == 0.5
    assert low == pytest.approx(1 - high)


def test_skewness_is_taken_out_of_the_scores():
    """Means of 100 squares of normal numbers: the lower tail of t is ten times too heavy, that of the score is not."""
    values = np.random.default_rng(0).standard_normal((40_000, 100)) ** 2
    centred = values - values.mean(1, keepdims=True)
    data = xr.Dataset(
        {
            "risk": ("run", values.mean(1)),
            "risk_error": ("run", values.std(1, ddof=1) / 10),
            "risk_skewness": ("run", (centred**3).mean(1) / values.std(1) ** 3),
            "test_prompts": 100,
        }
    )
    raw, score = (data.risk - 1) / data.risk_error, z_scores(data, xr.DataArray(1.0))
    expected = 40_000 * 0.00135  # beyond 3
    assert float((raw < -3).sum()) > 5 * expected
    assert float((score < -3).sum()) < 2.5 * expected
    assert float((score > 3).sum()) < 2.5 * expected


def test_figures_draw_the_data():
    data = small()
    for entry in figures("trained"):
        figure = entry.draw(data)
        with house_style():
            figure.draw_without_rendering()
        assert all(axes.get_xlabel() for axes in figure.axes)
    bare, _ = figures("trained")[0].draw(data).axes
    lines = [np.asarray(line.get_ydata(), dtype=float) for line in bare.lines]
    for name in ("softmax_optimum", "carried", "linear_optimum", "bayes"):
        assert any(len(each) == 2 and np.allclose(each, data[name] - data.floor) for each in lines)
    assert any(
        len(each) == 2 and np.allclose(each, data.risk.sel(model="attention 1x1").mean("run") - data.floor) for each in lines
    )


def test_dataset_survives_the_store(tmp_path):
    small().to_netcdf(tmp_path / "data.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "data.nc", engine="h5netcdf") as back:
        assert [each.outcome for each in STUDY.judge(back)] == [each.outcome for each in STUDY.judge(small())]
