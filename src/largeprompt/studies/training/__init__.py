"""C5, C6, C7, E2: training on long prompts beside training on the infinite prompt."""
