"""Tasks with marked outliers that several tests share."""

import torch

import largeprompt as lp
from largeprompt.studies.softmax_vs_linear.outliers import MarkedOutliers

F = torch.float64


def isotropic_outliers(d=6, noise=0.2, p=0.25, variance=4.0, sigma=1.0):
    eye = torch.eye(d, dtype=F)
    return MarkedOutliers(lp.LinearRegression(sigma * eye, eye / d, noise), p, variance)


def general_outliers():
    covariance = torch.tensor([[1.0, 0.3], [0.3, 0.6]], dtype=F)
    return MarkedOutliers(
        lp.LinearRegression(
            covariance, torch.eye(2, dtype=F) / 2, 0.2, 0.7 * torch.eye(2, dtype=F)
        ),
        0.3,
        5.0,
    )
