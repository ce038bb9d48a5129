"""Population risks at every length, with gradients and Hessians."""
