"""In-context learning: tasks, exact risks at every length, and the dynamics that descend them."""

from largeprompt.training.adam import adam_descent, adam_flow
from largeprompt.training.attainable import (
    BlockOptimum,
    LinearOptimum,
    LongPromptConstants,
    block_optimum,
    linear_optimum,
    long_prompt_constants,
)
from largeprompt.training.descent import gradient_descent, stochastic_gradient_descent
from largeprompt.training.flow import gradient_flow
from largeprompt.training.gap import DescentGap, descent_gap, modified_flow
from largeprompt.training.heads import HeadLattice, HeadsOptimum
from largeprompt.training.measure_regression import MeasureRegression, RegressionTokens, fixed_step_flow
from largeprompt.training.noise import Ensemble, stochastic_ensemble
from largeprompt.training.optimum import IsotropicOptimum, isotropic_optimum
from largeprompt.training.outliers import MarkedOutliers
from largeprompt.training.parameters import Block, Factorised, Full, Parametrisation
from largeprompt.training.regression import LinearRegression
from largeprompt.training.risk import Contexts, RiskError
from largeprompt.training.selection import (
    OutlierOptimum,
    crossing_variance,
    isotropic_outlier_risk,
    isotropic_outliers,
    linear_constant,
    softmax_constant,
)
from largeprompt.training.shifted import ShiftedRegression
from largeprompt.training.single_location import LocationOptimum, SingleLocationRegression
from largeprompt.training.stochastic import StochasticGap, stochastic_gap
from largeprompt.training.task import GaussianTask, RiskEstimate, Task
from largeprompt.training.trajectory import Trajectory
from largeprompt.training.tube import Tube, tube

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
