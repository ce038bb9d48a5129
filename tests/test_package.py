"""The package as a whole: its public surface, what importing it costs, and what it must not pull
in.
"""

import json
import re
import runpy
import subprocess
import sys
import tomllib
import types
from importlib.metadata import version
from pathlib import Path

import pytest

import largeprompt as lp

ROOT = Path(__file__).parents[1]
BESIDE_THE_MIRROR = {
    "audit/adapters/test_strangers.py",  # models and texts, whichever module reads them
    "test_package.py",
    "test_docs.py",
    "studies/softmax_vs_linear/test_selection.py",
    "theory/test_rates.py",
    "theory/test_accuracy.py",
    "theory/test_peers.py",
    "theory/test_first_order.py",
    "cli/test_wild.py",
    "faults/test_faults.py",
    "faults/test_readers.py",
    "faults/test_surface.py",
}
PUBLIC = """
Attention Certificate Discrete Empirical FinitePromptLaw Gaussian GaussianMixture
InvalidArgumentError Laplace LargePromptError LinearAttention LinearRegression Measure
NoMomentError Product PromptLength PromptSamples Rademacher SoftmaxAttention Sphere StudentT
Task TiltDomainError Trajectory Uniform affine_limit as_measure audit certificate depth
finite_prompt gradient_descent gradient_flow jacobian_certificate law length_scaling measures
output_scale prompt_length query_average sample_prompts scalar stochastic_gradient_descent
training weight_moment
""".split()  # noqa: SIM905


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_public_surface_is_what_we_mean_it_to_be():
    assert sorted(lp.__all__) == sorted(PUBLIC)
    assert len(PUBLIC) <= 45
    assert all(getattr(lp, name).__doc__ for name in lp.__all__)
    text = lp.__doc__
    assert all(name in text for name in PUBLIC)


@pytest.mark.parametrize(
    ("name", "near"), [("Gausian", "Gaussian"), ("finite_promt", "finite_prompt")]
)
def test_mistyped_names_are_answered_with_the_nearest(name, near):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; did you mean '{near}'"):
        getattr(lp, name)


def test_mistyped_keywords_are_answered_with_the_nearest():
    with pytest.raises(
        TypeError, match=r"finite_prompt\(\) has no argument 'lengths'; did you mean 'length'"
    ):
        lp.finite_prompt(None, None, None, lengths=3)
    with pytest.raises(TypeError, match=r"has no argument 'size'; it takes attention, mu, z"):
        lp.certificate(None, None, None, size=3)


def test_no_submodule_shadows_a_public_function():
    """``import largeprompt.certificates`` must not replace ``lp.certificate``; nor may any other
    submodule, whatever its name.
    """
    code = """
import importlib, pkgutil, types
import largeprompt as lp
for module in pkgutil.iter_modules(lp.__path__):
    if module.name != "__main__":
        importlib.import_module(f"largeprompt.{module.name}")
names = [name for name in lp.__all__ if name[0].islower()]
print([name for name in names if isinstance(getattr(lp, name), types.ModuleType)])
"""
    assert sorted(eval(run_python(code))) == [
        "audit",
        "depth",
        "law",
        "measures",
        "scalar",
        "training",
    ]


def test_version_is_said_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert lp.__version__ == project["version"] == version("largeprompt")
    assert f"version: {lp.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {lp.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_an_index_gets_no_dead_pictures_and_no_dead_links(monkeypatch):
    """hatch_build.py runs where the package is built; here without the builder."""
    for name in (
        "hatchling",
        "hatchling.metadata",
        "hatchling.metadata.plugin",
        "hatchling.metadata.plugin.interface",
    ):
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(MetadataHookInterface=object))
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["IndexDescription"]()
    hook.root, metadata, readme = str(ROOT), {}, (ROOT / "README.md").read_text()
    hook.update(metadata)
    found = metadata["readme"]["text"]
    assert "![" in readme
    assert "![" not in found
    assert not re.findall(r"\]\((?!https?:)", found)
    assert len(found) > len(readme) / 2
    assert "a [b](https://c) d" in hook.update.__globals__["without_files"](
        "a [b](https://c) d, [e](f.md)"
    )


HEAVY = (
    "torch",
    "matplotlib",
    "typer",
    "rich",
    "transformers",
    "sklearn",
    "pandas",
    "xarray",
    "scipy",
    "pytest",
    "pydantic",
)


def loaded_by(statement):
    """Top-level modules that a statement brings in."""
    return set(
        json.loads(
            run_python(f"import json, sys\n{statement}\nprint(json.dumps(list(sys.modules)))")
        )
    )


def test_import_is_light():
    """``import largeprompt`` without PyTorch, and with a law no more than PyTorch and a handful of
    modules.
    """
    assert not loaded_by("import largeprompt") & set(HEAVY)
    with_law = loaded_by("import largeprompt; largeprompt.Gaussian")
    assert "torch" in with_law
    assert not with_law & {
        "matplotlib",
        "typer",
        "rich",
        "transformers",
        "sklearn",
        "pandas",
        "xarray",
        "pytest",
        "pydantic",
    }
    assert "largeprompt.testing" not in with_law
    own = {
        name
        for name in with_law - loaded_by("import torch")
        if not name.startswith(("torch", "scipy", "numpy"))
    }
    # a count, not a time: what keeps the import well under half a second
    assert len(own) < 150, own


def test_help_loads_nothing_heavy():
    """``largeprompt --help`` needs typer and what it draws with, and no library that computes."""
    code = """
import sys
sys.argv = ["largeprompt", "--help"]
from largeprompt.__main__ import main
try:
    main()
except SystemExit:
    pass
"""
    output = run_python(f"{code}\nimport json; print(json.dumps(list(sys.modules)))").splitlines()
    assert not set(json.loads(output[-1])) & (set(HEAVY) - {"typer", "rich"})
    assert any("Commands" in line for line in output)


def test_report_needs_no_torch():
    modules = [
        "largeprompt.report.page",
        "largeprompt.runs.store",
        "largeprompt.runs.style",
        "largeprompt.audit.figures",
    ]
    assert "torch" not in loaded_by("\n".join(f"import {module}" for module in modules))


def test_library_leaves_global_state_alone():
    """STYLE: we never set the default dtype, the global seed or the number of threads, except
    around a cell, and back.
    """
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        for call in ("set_default_dtype", "torch.manual_seed", "set_num_threads", "np.random.seed"):
            allowed = call == "set_num_threads" and path.name == "worker.py"
            assert f"{call}(" not in text or allowed, f"{path} calls {call}"


def test_torch_is_pinned_exactly():
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().split()


def test_tests_mirror_the_source():
    """A file test_b.py tests the b.py of the same folder in the package; others are about the
    whole, the documents, or theorems.
    """
    tests, source = ROOT / "tests", ROOT / "src" / "largeprompt"
    found = {path.relative_to(tests) for path in tests.rglob("test_*.py")}
    assert {Path(name) for name in BESIDE_THE_MIRROR} <= found
    tested = {
        path: path.with_name(path.name.removeprefix("test_"))
        for path in found
        if str(path) not in BESIDE_THE_MIRROR
    }
    assert not {str(path) for path, module in tested.items() if not (source / module).is_file()}
