"""Q3: in-context Markov chains."""
