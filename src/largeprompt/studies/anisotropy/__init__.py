"""E3: covariances with spread eigenvalues."""
