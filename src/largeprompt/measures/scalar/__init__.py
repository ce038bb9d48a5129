"""Laws of one coordinate, and products of them."""
