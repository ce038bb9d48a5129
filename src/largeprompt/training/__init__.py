"""In-context learning: tasks, exact risks at every length, and the dynamics that descend them."""

from largeprompt.training.descent import gradient_descent, stochastic_gradient_descent
from largeprompt.training.flow import gradient_flow
from largeprompt.training.optimum import IsotropicOptimum, isotropic_optimum
from largeprompt.training.parameters import Block, Factorised, Full, Parametrisation
from largeprompt.training.regression import LinearRegression
from largeprompt.training.risk import Contexts, RiskError
from largeprompt.training.task import GaussianTask, RiskEstimate
from largeprompt.training.trajectory import Trajectory
from largeprompt.training.tube import Tube, tube

__all__ = [
    "Block",
    "Contexts",
    "Factorised",
    "Full",
    "GaussianTask",
    "IsotropicOptimum",
    "LinearRegression",
    "Parametrisation",
    "RiskError",
    "RiskEstimate",
    "Trajectory",
    "Tube",
    "gradient_descent",
    "gradient_flow",
    "isotropic_optimum",
    "stochastic_gradient_descent",
    "tube",
]
