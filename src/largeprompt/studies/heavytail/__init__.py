"""N3: heavy tails."""
