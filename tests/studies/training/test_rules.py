"""C5, C6, C7, E2: rules change their mind when the data does, and their controls fail."""

from study_checks import RuleChecks

from largeprompt.studies.training.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("come closer", "holds", "softmax_distance", {"length": 2}, lambda x: x + 1, "fails"),
        ("parallel", "holds", "softmax_gradient_cosine", {}, lambda x: -x, "fails"),
        ("within eps", "holds", "softmax_best", {}, lambda x: 0 * x + 1e-4, "fails"),
        ("within eps", "holds", "softmax_best", {}, lambda x: x + 1, "undecided"),
        ("three times the read-out", "fails", "softmax_astray", {}, lambda x: 0 * x, "holds"),
        ("limit of their own law", "holds", "input_distance", {}, lambda x: 0 * x + 1, "fails"),
        ("Gaussian theory", "fails", "input_gaussian_distance", {}, lambda x: 0 * x, "holds"),
        ("Grönwall", "holds", "linear_envelope", {}, lambda x: x / 9, "fails"),
        ("with the Bayes risk", "holds", "end_converged", {"start": 0}, lambda x: 0 * x, "fails"),
        ("with the Bayes risk", "holds", "end_b_error", {"start": 0}, lambda x: x + 1, "fails"),
        ("nearer to the Bayes risk", "holds", "drift_risk", {}, lambda x: 0 * x + 1, "fails"),
        ("drift on", "holds", "drift_optimal_b", {}, lambda x: x + 1, "fails"),
        ("Do other starts", "holds", "end_A_error", {"start": 3}, lambda x: x + 1, "fails"),
        ("unbalanced start", "fails", "end_theorem_error", {}, lambda x: 0 * x, "holds"),
        ("same training dynamics", "holds", "linear_limit_theta", {}, lambda x: x + 1, "fails"),
        ("tend to the Bayes risk", "holds", "linear_best", {}, lambda x: 0 * x + 1, "fails"),
    )
