"""E2, C5, C7: training on long prompts against the infinite prompt."""
