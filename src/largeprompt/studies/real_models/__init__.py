"""Real models: heads of SmolLM2 and TabPFN, small states, and scores that grow with length."""
