"""The package as a whole: its public surface, what importing it costs, and what it must not pull in."""

import contextlib
import json
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import torch

import largeprompt as lp

ROOT = Path(__file__).parents[1]

PUBLIC = """
Attention Certificate ChainExpansion Contexts DeepLimit DeepNoise Discrete Empirical ErrorBar Factorised FinitePromptLaw Gaussian
GaussianMixture GaussianTask GeneralisedNormal GeneralisedNormalLaw HeadLattice InvalidArgumentError Laplace LaplaceLaw
LargePromptError LinearAttention LinearRegression LogNormal LogNormalLaw MarkedOutliers MarkovChain Measure MeasureRegression
NoMomentError Product PromptLength PromptSamples QueryAverage Rademacher RademacherLaw RademacherSum RademacherSumLaw
ResidualStack RunningTilt ScalarLaw ShiftedRegression SingleLocationRegression SkewNormal SkewNormalLaw SoftmaxAttention Sphere
StudentT StudentTLaw Task TiltDomainError Trajectory Tube Uniform UniformLaw adam_descent adam_flow affine_limit atomic_errors
block_optimum breaking_layer certificate chain_error chain_expansion crossing_variance cumulant_ladder deep_limit deep_noise
descent_gap effective_length finite_prompt gauss_rule gradient_descent gradient_flow isotropic_optimum isotropic_outliers
jacobian_certificate ladder_radius linear_optimum long_prompt_constants product_rule prompt_length query_average regime
sample_prompts stochastic_gap stochastic_gradient_descent tube two_head_moments weight_moment weight_moments
""".split()  # noqa: SIM905


def test_public_surface_is_what_we_mean_it_to_be():
    assert sorted(lp.__all__) == sorted(PUBLIC)
    assert all(getattr(lp, name).__doc__ for name in lp.__all__)


def test_version_is_told_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert lp.__version__ == project["version"] == version("largeprompt")
    assert f"version: {lp.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {lp.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_import_is_light():
    """No plotting, command-line or model library; only a handful of modules beyond torch's own."""
    code = """
import json, sys
import torch
before = set(sys.modules)
import largeprompt
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    added = json.loads(output)
    roots = {name.split(".")[0] for name in added}
    assert not roots & {
        "matplotlib",
        "typer",
        "click",
        "rich",
        "transformers",
        "sklearn",
        "pandas",
        "xarray",
        "marimo",
        "dask",
        "pytest",
    }
    assert "largeprompt.testing" not in added
    assert len(added) < 150, added  # a count, not a time: what keeps the import well under half a second


def test_report_needs_no_torch():
    # the package root imports torch for the operators, so the module is loaded from its file here
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('style', {str(ROOT / 'src/largeprompt/report/figures/style.py')!r})\n"
        "spec.loader.exec_module(importlib.util.module_from_spec(spec))\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_library_leaves_global_state_alone():
    """STYLE: we never set the default dtype, the global seed or the number of threads, except around a cell, and back."""
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        for call in ("set_default_dtype", "torch.manual_seed", "set_num_threads", "np.random.seed"):
            allowed = call == "set_num_threads" and path.name == "registry.py"
            assert f"{call}(" not in text or allowed, f"{path} calls {call}"


def test_a_cell_runs_on_one_thread_and_gives_the_rest_back():
    from largeprompt.studies.registry import one_thread

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with contextlib.suppress(RuntimeError), one_thread():
            assert torch.get_num_threads() == 1
            raise RuntimeError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_torch_is_pinned_exactly():
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().split()
