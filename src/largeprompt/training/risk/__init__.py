"""Population risks at every length as functions of the layer, with what differentiates them."""
