"""In-context learning: tasks, exact risks at every length, and the dynamics that descend them."""

from largeprompt.training.dynamics.adam import adam_descent, adam_flow
from largeprompt.training.dynamics.descent import gradient_descent, stochastic_gradient_descent
from largeprompt.training.dynamics.flow import gradient_flow
from largeprompt.training.dynamics.parameters import Block, Factorised, Full, Parametrisation
from largeprompt.training.dynamics.trajectory import Trajectory
from largeprompt.training.gaps.descent import DescentGap, descent_gap, modified_flow
from largeprompt.training.gaps.ensemble import Ensemble, stochastic_ensemble
from largeprompt.training.gaps.stochastic import StochasticGap, stochastic_gap
from largeprompt.training.gaps.tube import Tube, tube
from largeprompt.training.optima.heads import HeadLattice, HeadsOptimum
from largeprompt.training.optima.isotropic import IsotropicOptimum, isotropic_optimum
from largeprompt.training.optima.layer import (
    BlockOptimum,
    LinearOptimum,
    LongPromptConstants,
    block_optimum,
    linear_optimum,
    long_prompt_constants,
)
from largeprompt.training.optima.outliers import (
    OutlierOptimum,
    crossing_variance,
    isotropic_outlier_risk,
    isotropic_outliers,
    linear_constant,
    softmax_constant,
)
from largeprompt.training.risk.exact import Contexts, RiskError
from largeprompt.training.tasks.measure_regression import MeasureRegression, RegressionTokens, fixed_step_flow
from largeprompt.training.tasks.outliers import MarkedOutliers
from largeprompt.training.tasks.regression import LinearRegression
from largeprompt.training.tasks.shifted import ShiftedRegression
from largeprompt.training.tasks.single_location import LocationOptimum, SingleLocationRegression
from largeprompt.training.tasks.task import GaussianTask, RiskEstimate, Task

__all__ = [
    "Block",
    "BlockOptimum",
    "Contexts",
    "DescentGap",
    "Ensemble",
    "Factorised",
    "Full",
    "GaussianTask",
    "HeadLattice",
    "HeadsOptimum",
    "IsotropicOptimum",
    "LinearOptimum",
    "LinearRegression",
    "LocationOptimum",
    "LongPromptConstants",
    "MarkedOutliers",
    "MeasureRegression",
    "OutlierOptimum",
    "Parametrisation",
    "RegressionTokens",
    "RiskError",
    "RiskEstimate",
    "ShiftedRegression",
    "SingleLocationRegression",
    "StochasticGap",
    "Task",
    "Trajectory",
    "Tube",
    "adam_descent",
    "adam_flow",
    "block_optimum",
    "crossing_variance",
    "descent_gap",
    "fixed_step_flow",
    "gradient_descent",
    "gradient_flow",
    "isotropic_optimum",
    "isotropic_outlier_risk",
    "isotropic_outliers",
    "linear_constant",
    "linear_optimum",
    "long_prompt_constants",
    "modified_flow",
    "softmax_constant",
    "stochastic_ensemble",
    "stochastic_gap",
    "stochastic_gradient_descent",
    "tube",
]
