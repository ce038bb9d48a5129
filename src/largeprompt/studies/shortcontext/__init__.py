"""F1: short prompts."""
