"""Public calls with wild arguments: every outcome is a number, or one of our errors that says what
is wrong.

Calls are source text, so that one that fails can be pasted: after ``from test_surface import *`` it
is what is printed.
"""

import ast
import collections
import contextlib
import dataclasses
import inspect
import math  # noqa: F401
import random
import re
import signal
import traceback
import warnings

import numpy as np
import pytest
import torch
from commands import ROUNDS

import largeprompt as lp
from largeprompt import certificates, planning, validation

COUNT = 5_000 if ROUNDS == 1 else 100_000
LIMIT = 2.0  # seconds of one call, beyond which it is ended
MEMORY = 2.0**31  # of the machine that the calls believe to be on
F = torch.float64
eye, z = torch.eye(2, dtype=F), torch.tensor([0.4, -0.3], dtype=F)
layer, one = lp.SoftmaxAttention(eye / 2, eye), lp.SoftmaxAttention([[1.0]], [[1.0]])
normal, line = lp.Gaussian([0.1, 0.0], eye), lp.Gaussian([0.0], [[1.0]])
discrete = lp.Discrete([[1.0, 0.0], [-1.0, 0.5], [0.0, 0.3]], [0.5, 0.25, 0.25])
mixture = lp.GaussianMixture([0.5, 0.5], [[0.0, 0.0], [1.0, 1.0]], [[[1.0, 0.0], [0.0, 1.0]]] * 2)
prompt, signs, heavy = (
    lp.Empirical([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]),
    lp.Rademacher(2),
    lp.StudentT(2, 3.0),
)
chain = lp.measures.MarkovChain([[0.5, 0.5], [0.2, 0.8]])
chain_layer = lp.SoftmaxAttention(torch.eye(4, dtype=F), [[0.0, 0.0, 1.0, 0.0]])
chain_query, rule = [1.0, 0.0, 0.0, 0.0], lp.measures.gauss_rule(line, 5)
task, block = (
    lp.LinearRegression([[1.0]], [[1.0]], 0.1),
    lp.SoftmaxAttention([[0.1, 0.0], [0.0, 0.0]], [[0.0, 0.5]]),
)
average = lp.training.SobolAverage(64)
stack = lp.depth.ResidualStack(0.3 * torch.stack([eye, eye]), 0.3 * torch.stack([eye, eye]))
limit = lp.depth.deep_limit(stack, normal)
noise, certified = lp.depth.deep_noise(limit, 2), lp.certificate(layer, normal, z, 100)
drawn = torch.randn(1, 2, 40, 4, generator=torch.Generator().manual_seed(0), dtype=F)
heads = lp.audit.Heads(drawn, drawn, drawn, None, 0.5)
audited = lp.audit.audit_heads(heads, positions=4, components=(), sinks=0)
attending = torch.nn.MultiheadAttention(4, 2, batch_first=True, dtype=F)
LAWS = (
    "normal",
    "discrete",
    "mixture",
    "prompt",
    "signs",
    "lp.Laplace(2)",
    "lp.Sphere(2)",
    "lp.Uniform(2)",
)


def entered(block):
    """What is inside a ``with`` block of a call."""
    with block as inside:
        return inside


def square(theta):
    """A risk."""
    return theta.square().sum(-1)


FLOW = (
    "task=task, attention=block, length=10, until=0.3, average=average, "
    "parametrization='block', tolerance=1e-3"
)
DESCENT = (
    "task=task, attention=block, length=10, step_size=0.1, steps=2, average=average, "
    "parametrization='block'"
)
# no model of transformers: always refused
MODEL = "model=torch.nn.Linear(2, 2), inputs={'input_ids': torch.zeros(1, 4).long()}"
CALLS = [
    *(call.replace("LAW", law) for law in LAWS for call in (
        "lp.finite_prompt(attention=layer, mu=LAW, z=z, length=20, expansion=False)",
        "lp.finite_prompt(attention=layer, mu=LAW, z=z, length=[5, math.inf], expansion=True)",
        "lp.certificate(attention=layer, mu=LAW, z=z, length=100)",
        "lp.sample_prompts(layer, LAW, z, lengths=[2, 5], replicas=3, generator=0, reduced=False, "
        "jacobian=False)",
        "lp.affine_limit(attention=layer, mu=LAW)",
        "layer(LAW, z)",
        "layer.jacobian_u(LAW, z)",
        "layer.jacobian_v(LAW, z)",
        "LAW.cgf(z)",
        "LAW.tilted_mean(z)",
        "LAW.tilted_covariance(z)",
        "LAW.tilt(z)",
        "LAW.map(matrix=eye, offset=z)",
        "LAW.sample(n=3, generator=0)",
        "LAW.sample_tilted(z, 3, 0)",
        "LAW.norm_moment4(z)",
    )),
    "lp.sample_prompts(layer, normal, z, lengths=[2, 5], replicas=3, generator=0, reduced=True)",
    "lp.sample_prompts(layer, heavy, z, lengths=3, replicas=3, generator=0)",
    "lp.jacobian_certificate(attention=layer, mu=normal, z=z, length=100)",
    "lp.jacobian_certificate(attention=layer, mu=signs, z=z, length=[100, 1000])",
    "certified.tail(0.5)",
    "layer.error_bar(prompt, z)",
    "lp.LinearAttention(eye, eye)(normal, z)",
    "lp.prompt_length(layer, normal, z, tolerance=0.1, method='exact', relative=False, "
    "target='limit', points=64, generator=0)",
    "lp.prompt_length(layer, normal, z, tolerance=0.2, method='certified')",
    "lp.query_average(layer, normal, queries=normal, length=10, method='exact', points=64, "
    "generator=0)",
    "lp.query_average(layer, normal, queries=normal, length=10, method='estimate', points=64, "
    "generator=0)",
    "lp.Gaussian(mean=z, covariance=eye)",
    "lp.as_measure(obj=torch.distributions.Normal(z, 1.0))",
    "lp.length_scaling(length=100, reference_length=10, score_variance=1.0)",
    "lp.output_scale(length=100, score_variance=1.0)",
    *(f"planning.{name}_scaling(length=100, reference_length=10)"
      for name in ("yarn", "log_n", "longrope")),
    "lp.GaussianMixture(weights=[0.5, 0.5], means=eye, covariances=torch.stack([eye, eye]))",
    "lp.Empirical(tokens=eye, weights=None)",
    "lp.Empirical(tokens=eye, weights=[0.5, 0.5])",
    "lp.Discrete(atoms=eye, weights=[0.5, 0.5])",
    *(f"lp.{name}(dim=2)" for name in ("Laplace", "Rademacher", "Uniform")),
    "lp.StudentT(dim=2, df=5.0)",
    "lp.Sphere(dim=2, radius=1.0)",
    "lp.Product(laws=[lp.scalar.LaplaceLaw(), lp.scalar.UniformLaw()])",
    "lp.scalar.GeneralizedNormal(dim=1, shape=2.0)",
    "lp.scalar.GeneralizedNormalLaw(shape=2.0)",
    "lp.scalar.LogNormal(dim=1, scale=0.5)",
    "lp.scalar.LogNormalLaw(scale=0.5)",
    "lp.scalar.RademacherSum(dim=1, terms=3)",
    "lp.scalar.RademacherSumLaw(terms=3)",
    "lp.scalar.SkewNormal(dim=1, skew=0.5)",
    "lp.scalar.SkewNormalLaw(skew=0.5)",
    "lp.scalar.StudentTLaw(df=5.0, scale=1.0)",
    "lp.scalar.LaplaceLaw()",
    "lp.scalar.UniformLaw()",
    "lp.scalar.RademacherLaw()",
    "lp.SoftmaxAttention(U=eye, V=eye)",
    "lp.LinearAttention(U=eye, V=eye)",
    "lp.SoftmaxAttention.from_projections(K=eye, Q=eye, V=eye, scale=1.0)",
    "lp.weight_moment(length=10, scale=1.0, powers=[(2, 0)], center=0.0)",
    "lp.law.regime(score_variance=1.0, length=10)",
    "lp.law.collision_moments(length=10, scale=1.0, variance=None)",
    "planning.effective_length(attention=layer, mu=normal, z=z, length=10, correlation=0.5)",
    "lp.law.finite_prompt(attention=chain_layer, mu=chain, z=chain_query, length=10)",
    "lp.measures.MarkovChain(transition=[[0.5, 0.5], [0.2, 0.8]])",
    "lp.measures.MarkovChain.random(alphabet=2, order=1, concentration=1.0, generator=0)",
    "chain.lazy(0.5)",
    "lp.length_scaling(length=100, reference_length=10, score_variance=1.0)",
    "lp.output_scale(length=100, score_variance=1.0)",
    "planning.log_n_scaling(length=100, reference_length=10)",
    "planning.longrope_scaling(length=100, reference_length=10)",
    "planning.yarn_scaling(length=100, reference_length=10)",
    "chain.ngrams(2)",
    "chain.tokens([[0, 1, 1]], 2)",
    "chain.sample(length=5, replicas=3, generator=0)",
    "lp.measures.gauss_rule(mu=line, nodes=5)",
    "lp.measures.cumulant_ladder(mu=normal, u=z)",
    "lp.measures.log_gamma(z=0.5)",
    "lp.measures.sobol_points(mu=normal, count=16, seed=0)",
    "prompt.running(z, covariance=True).merge(prompt.running(z))",
    "lp.LinearRegression(covariance=eye, prior_covariance=eye, noise_variance=0.1, "
    "query_covariance=eye)",
    "task.risk(block, 10, average=average)",
    "task.risk_estimate(block, 10, average=average)",
    "task.bayes_risk(10)",
    "task.sample(2, 3, 0)",
    "task.token_law([0.5])",
    f"lp.gradient_flow({FLOW}, times=[0.1, 0.3], gradient_tolerance=0.0, method='auto')",
    f"lp.gradient_descent({DESCENT}, record=3)",
    f"lp.stochastic_gradient_descent({DESCENT}, batch_size=2, generator=0, optimizer='SGD')",
    f"lp.training.adam_descent({DESCENT}, betas=(0.9, 0.999), epsilon=1e-8)",
    f"lp.training.descent_gap({FLOW}, times=[0.1, 0.3], resolution=0.5)",
    f"lp.training.tube({FLOW.replace('length=10', 'length=[10]')}, times=[0.1, 0.3])",
    "lp.training.linear_optimum(task=task, length=10)",
    "lp.training.isotropic_optimum(task=task, length=10, start=None)",
    "lp.training.MeasureRegression(inputs=line, prior_covariance=[[1.0]], noise_variance=0.1)",
    "lp.training.SobolAverage(points=64, seed=0)",
    "lp.training.Factorized(K=eye, Q=eye, V=eye, readout=[[1.0, 0.0]])",
    "lp.training.Factorized.default(dim=2, generator=0)",
    "lp.depth.ResidualStack(U=torch.stack([eye, eye]), V=torch.stack([eye, eye]), "
    "normalization='none')",
    "list(stack.states(tokens=eye))",
    "lp.depth.deep_limit(stack=stack, mu=normal)",
    "lp.depth.deep_noise(limit=limit, degree=2)",
    "lp.depth.breaking_layer(limit=limit, length=100, reaches='heavy')",
    "limit.tokens(z)",
    "noise.displacement(eye)",
    "lp.audit.Heads(query=drawn, key=drawn, value=drawn, mask=None, scale=0.5, causal=False, "
    "cap=None, atoms=0)",
    "lp.audit.audit_heads(heads=heads, positions=4, components=(1,), sinks=1)",
    "lp.audit.head_statistics(heads=heads, positions=torch.tensor([3, 5]), components=(), sinks=0)",
    "lp.audit.read_out(heads=heads, kind='affine', components=2, sinks=1)",
    "lp.audit.module_heads(module=attending, tokens=torch.ones(1, 3, 4, dtype=F), causal=False)",
    "lp.audit.Rule(tolerance=0.2, flat=0.1, few=16.0, fewest=32)",
    "lp.audit.Plan(heads=((0, 0),), layers=(0,), heads_in_layer=2, measure='loss', budget=1.0, "
    "kept=1.0, confirmed=None, sinks=1)",
    "lp.audit.summary(data=audited, rule=None)",
    "lp.audit.table(data=audited)",
    "lp.audit.plot(audit=None)",
    "lp.audit.load_model(model='/nowhere')",
    "lp.audit.load_model(model='nobody/nowhere')",
    "lp.audit.read_texts(model='/nowhere', files=['/nowhere'], longest=None)",
    f"lp.audit.audit_model({MODEL}, positions=2, lengths=None, components=(), sinks=1)",
    f"lp.audit.perplexity({MODEL})",
    f"lp.audit.plan_linear({MODEL}, budget=0.9)",
    f"lp.audit.replacement_curves({MODEL}, order=[(0, 0)], counts=[1])",
    "entered(lp.audit.linearize(model=None, heads=[(0, 0)], kind='affine', components=8, sinks=1))",
    "entered(lp.audit.zero_heads(model=None, heads=[(0, 0)]))",
    "entered(lp.audit.monitor(model=None, every=2, positions=4))",
    "lp.audit.monitor_callback(every=2, positions=4)",
    "entered(lp.audit.watching(model=None, visitor=square))",
]  # fmt: skip
REFUSED = ("/nowhere'", "model=", "audit=None")  # calls that no arguments of this file make valid
EXPRESSIONS = """
None True False ... math.nan math.inf -math.inf 0 -1 1 2 3 1.5 0.3 10**400 10**5000 -10**30 2**63
2**62 10**15 1e308 -1e308 1e152 1e-320 1e-8 30.0 600.0 1e6 1j "x" "" "no" b"1" [] () {} [1,"a"]
[[1.0],[1.0,2.0]] [math.nan] [10,math.inf] [[]] [None] object() torch.zeros(0,dtype=F)
torch.zeros(0,2,dtype=F) torch.zeros(2,0,dtype=F) torch.zeros(2,dtype=F) torch.ones(3,dtype=F)
torch.zeros(2,2,dtype=F) torch.ones(2,2,2,dtype=F) torch.ones(1,1,1,1,dtype=F) eye.to_sparse()
z.to_sparse() z.to(torch.complex128) z.float() z.half() z.bfloat16() (z>0) torch.tensor(3)
torch.tensor(3.0) torch.tensor(math.nan) torch.ones(2,dtype=F,device="meta")
torch.tensor(1.0,device="meta") z.clone().requires_grad_() np.ma.array([1.0,2.0],mask=[0,1])
np.ma.array([1.0,2.0],mask=[0,0]) np.ma.masked np.array(["a"]) np.array([1,None])
np.datetime64("2020-01-01") np.float32(2) np.int64(3) np.longdouble(2) np.array(2.0) 1e8*eye
1e150*eye 1e308*eye 30*z 1e100*z 1e152*z/0.5 -1e308*z 0*eye -eye [[1.0,2.0],[3.0,4.0]] normal
discrete mixture prompt signs heavy line chain lp.StudentT(2,0.5) lp.Sphere(2)
lp.scalar.LogNormal(2,1.0) lp.Gaussian(0*z,0*eye) lp.Gaussian(1e150*z,1e150*eye)
lp.Gaussian(eye,eye) lp.Empirical(torch.zeros(3,2,2,dtype=F)) layer one block
lp.LinearAttention(eye,eye) task average rule heads stack limit lp.Gaussian int square range(3)
{1,2} iter([1]) [2**53,3] [3,3] [5,2] [1,10**15] [(1,1)] [[(40,0)]] [[(1,-1)]] "block" "estimate"
"certified" "affine" "sphere" "Adam" "Radau"
lp.training.Factorized.default(2,0) torch.Generator()
1e152*layer.U lp.SoftmaxAttention(1e150*eye,1e150*eye) lp.SoftmaxAttention(0*eye,0*eye)
lp.SoftmaxAttention(40*eye,eye) lp.SoftmaxAttention(eye.expand(3,2,2),eye)
"""
WILD = EXPRESSIONS.split()
LEFT_ALONE = {"risk", "visitor"}  # functions of the caller's own, whose errors are theirs
LOOKED_AT = """
limit mean bias covariance mse rmse jacobian_v_mse score_variance effective_tokens bound remainder
theta outputs cgf risk value times parameters collision standard_error support_radius weights law
stationary relaxation_time
"""
NO_CALLS = """
Attention Measure Task GaussianTask Parametrization ScalarLaw ProductMeasure LogConcaveLaw
AffineImage Tilted AtomicMeasure Certificate ErrorBar FinitePromptLaw PromptLength QueryAverage
PromptSamples Trajectory CollisionMoments RunningTilt PlantedMoments ScalarPrompt Contexts
DescentGap Monitor
IsotropicOptimum LinearOptimum Solution Tube RiskEstimate DeepLimit DeepNoise FINDINGS HeadTable
Normalization AuditError AuditWarning RiskError InvalidArgumentError LargePromptError NoMomentError
TiltDomainError __version__
"""  # abstract classes, results, errors, and words
NAMED = {  # what was found in 0.4.0, and what is said now
    "lp.finite_prompt(one, line, [30.0], math.inf, expansion=True).mse": "",
    "lp.finite_prompt(layer, discrete, torch.zeros(0, 2, dtype=F), 10).mse": "",
    "planning.effective_length(layer, lp.Gaussian(0 * z, 0 * eye), z, 10, 0.5)": "",
    "lp.Laplace(2).map(0 * eye)": "",
    "lp.scalar.StudentTLaw(5.0, math.nan)": "scale: got nan; allowed: a positive number",
    "lp.audit.Heads(drawn, drawn, drawn, None, math.nan)": "scale: got nan",
    "lp.audit.Heads(drawn, drawn, drawn, None, 0.5, cap=math.nan)": "cap: got nan",
    "lp.audit.Heads(drawn, True, drawn, None, 0.5)": "key: got True; allowed: a dense tensor",
    "lp.audit.Rule(tolerance=math.nan)": "tolerance: got nan",
    "lp.audit.Plan(((0, 0),), (0,), math.nan)": "heads_in_layer: got nan",
    "lp.audit.audit_heads(None)": "heads: got None; allowed: Heads",
    "lp.law.regime('x', 10)": "score_variance: got 'x'; allowed: one nonnegative number",
    "lp.training.linear_optimum(None)": "task: got None; allowed: a LinearRegression",
    "lp.finite_prompt(layer, normal, z, "
    "10**5000)": "length: got an integer of 5001 digits; allowed: an integer from 1 to 10^15",
    "lp.prompt_length(layer, normal, z, 10**400)": "tolerance: got an integer of 401 digits",
    "lp.finite_prompt(layer, normal, z, 10, "
    "expansion='no')": "expansion: got 'no'; allowed: True or False",
    "lp.prompt_length(layer, normal, z, 0.1, relative='no')": "relative: got 'no'",
    "lp.finite_prompt(one, line, torch.tensor([1j]), "
    "10)": "z: got dtype torch.complex64; allowed: a real dtype",
    "one(line, 1j)": "z: got dtype torch.complex128",
    "lp.Empirical(np.ma.array([[1.0, 2.0]], mask=[[0, 1]]))": "tokens: got 1 masked of 2 entries",
    "lp.SoftmaxAttention(eye.to_sparse(), "
    "eye)": "U: got a sparse, nested or quantized tensor; allowed: a dense tensor",
    "lp.Empirical(torch.ones(2, 2, device='meta'))": "tokens: got a tensor without entries",
    "mixture.cgf([1e160, -1e160])": "u: got an entry of size 1e+160; allowed: numbers of size up "
    "to 1e+152",
    "lp.Sphere(2).tilted_mean([1e308, 1e308])": "u: got an entry of size 1e+308",
    "lp.Sphere(2, 1e9).tilted_covariance([1e150, "
    "0.0])": "u: got numbers so large that their products overflow",
    "normal.map(1e200 * eye)": "matrix: got an entry of size 1e+200",
    "lp.Gaussian(z, 1e10 * eye).map(1e150 * "
    "eye)": "matrix: got numbers so large that their products overflow",
    **{
        f"{law}.sample(10**15)": "n: got 1000000000000000, which takes 1.49e+07 GiB of memory; "
        "allowed: what fits"
        for law in LAWS
    },
    "lp.sample_prompts(layer, signs, z, [10], 10**12, "
    "0)": "replicas: got 1000000000000, which takes 1.49e+04 GiB of memory",
    "lp.sample_prompts(layer, normal, z, [10], 10**12, 0, "
    "reduced=True)": "replicas: got 1000000000000, which takes",
    "lp.sample_prompts(layer, normal, z, [10**15], 2, "
    "0)": "replicas and lengths: got (2, 1000000000000000), which takes some",
    "lp.query_average(layer, normal, normal, 10, method='estimate', points=2**40, "
    "generator=0)": "points: got 1099511627776",
    "lp.training.SobolAverage(points=2**40)": "points: got 1099511627776; allowed",
    "lp.Rademacher(10**6).covariance": "dim: got 1000000, which takes 7.45e+03 GiB of memory",
    "lp.Rademacher(10**12)": "dim: got 1000000000000, which takes",
    "lp.gradient_descent(task, block, 10, 0.1, "
    "1e308)": "steps: got an integer of 309 digits; allowed: an integer",
    "lp.gradient_descent(task, block, 10, 0.1, "
    "10**15)": "steps: got 1000000000000000, which takes some 3.17e+03 years",
    "lp.finite_prompt(one, lp.GaussianMixture([0.5, 0.5], [[-1e8], [1e8]], [[[1.0]]] * 2), [1.0], "
    "100)": "scores: got a spread of",
}


class SlowError(BaseException):
    """A call that is ended; no Exception, so that nobody catches it."""


def _end(*_):
    raise SlowError


def parts(source):
    """The call of a source text, and the places of its arguments: those of the last call in it that
    has any.
    """
    tree = ast.parse(source, mode="eval")
    call = tree.body
    while isinstance(call.args[0] if call.args else None, ast.Call) and ast.unparse(call.func) in (
        "list",
        "entered",
    ):
        call = call.args[0]
    named = [(each, "value") for each in call.keywords if each.arg not in LEFT_ALONE]
    return tree, [(call.args, i) for i in range(len(call.args))] + named


def mutated(source, chance):
    """The call with one or two of its arguments replaced."""
    tree, places = parts(source)
    for place, key in chance.sample(places, min(len(places), chance.choice([1, 1, 1, 2]))):
        node = ast.parse(chance.choice(WILD), mode="eval").body
        if isinstance(place, list):
            place[key] = node
        else:
            place.value = node
    return ast.unparse(tree)


def has_nan(value, depth=0):
    """Whether a result holds NaN, in whatever it is made of."""
    if isinstance(value, torch.Tensor):
        return bool(torch.isnan(value.detach()).any())
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fc" and bool(np.isnan(value).any())
    if isinstance(value, float | complex | np.floating):
        return value != value
    if isinstance(value, tuple | list) and depth < 3:
        return any(has_nan(each, depth + 1) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and depth < 3:
        return any(
            has_nan(getattr(value, field.name, None), depth + 1)
            for field in dataclasses.fields(value)
        )
    return False


def looked_at(result):
    """Numbers that a result computes when it is asked for them; a law may have none."""
    kinds = (torch.Tensor, float, int, tuple, list, str, dict, type(None), lp.Attention)
    for name in () if isinstance(result, kinds) else LOOKED_AT.split():
        if hasattr(type(result), name):
            with contextlib.suppress(lp.NoMomentError, lp.TiltDomainError):
                value = getattr(result, name)
                if not callable(value):
                    yield name, value
    if isinstance(result, lp.Measure):
        yield "cgf", result.cgf(torch.zeros(result.dim, dtype=result.dtype))
        yield "sample", result.sample(2, 0)


def outcome(source, limit=LIMIT):
    """'number', 'refused' or 'slow'; else what is wrong with the call."""
    warnings.simplefilter("ignore")  # NumPy's, about what it is given
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        result = eval(source, globals())
        # a mean that does not exist
        absent = isinstance(result, lp.FinitePromptLaw) and "lp.StudentT(2, 0.5)" in source
        for name, value in (("it", result), *looked_at(result)):
            if has_nan(value) and not absent:
                return f"NaN in {name} of {source.partition('(')[0]}"
        repr(result)
    except lp.InvalidArgumentError as error:
        told = (
            all(isinstance(each, str) and each for each in (error.name, error.given, error.allowed))
            and len(str(error)) < 1500
        )
        return "refused" if told else f"an error that does not say what is wrong: {error}"
    except lp.LargePromptError as error:
        return (
            "refused"
            if len(str(error)) > 20
            else f"an error that does not say what is wrong: {error}"
        )
    except SlowError:
        return "slow"
    except Exception as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        where = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if "largeprompt" in frame.filename
        ]
        place = (
            f"{where[-1].filename.split('largeprompt/')[-1]}:{where[-1].lineno}"
            if where
            else "outside"
        )
        return f"{type(error).__name__} at {place}: {str(error)[:80]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "number"


@pytest.fixture(scope="module")
def unchanged():
    """Outcomes of the calls as they stand, on a machine of little memory with an alarm that ends
    long calls.
    """
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(validation, "memory", lambda device: MEMORY)
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        before = signal.signal(signal.SIGALRM, _end)
        # once without haste: an import must not be ended midway
        yield {source: outcome(source, 60.0) for source in CALLS}
        signal.signal(signal.SIGALRM, before)


def test_every_public_name_is_called():
    spaces = (
        lp,
        lp.law,
        lp.training,
        lp.scalar,
        lp.depth,
        lp.measures,
        lp.audit,
        planning,
        certificates,
    )
    public = {
        name
        for space in spaces
        for name in space.__all__
        if not inspect.ismodule(getattr(space, name))
    }
    called = {
        node.attr
        for source in CALLS
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
    }
    assert public - called <= set(NO_CALLS.split())


@pytest.mark.parametrize("source", NAMED)
def test_what_was_found_is_mended(unchanged, source):
    if words := NAMED[source]:
        with pytest.raises(lp.InvalidArgumentError, match=re.escape(words)):
            eval(source, globals())
    else:
        assert outcome(source) == "number"


def test_the_calls_themselves_are_valid(unchanged):
    expected = {
        source: "refused" if any(word in source for word in REFUSED) else "number"
        for source in CALLS
    }
    assert dict(unchanged.items() - expected.items()) == {}


@pytest.mark.filterwarnings("ignore")  # NumPy's, about what it is given
def test_wild_arguments_give_numbers_or_our_errors(unchanged):
    chance, counts, wrong = random.Random(17), collections.Counter(), collections.defaultdict(list)
    for number in range(COUNT):
        source = mutated(CALLS[number % len(CALLS)], chance)
        how = outcome(source)
        counts[how if how in ("number", "refused", "slow") else "wrong"] += 1
        if how not in ("number", "refused"):
            wrong[how].append(source)
    print(dict(counts))
    told = "\n".join(
        f"{len(calls):4} {how}\n     {min(calls, key=len)}" for how, calls in sorted(wrong.items())
    )
    slow = wrong.pop("slow", [])
    assert not wrong, f"{dict(counts)}\n{told}"
    assert len(slow) <= COUNT / 200, "\n".join(slow)
