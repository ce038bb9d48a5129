"""N1, C5: tokens that are not Gaussian."""
