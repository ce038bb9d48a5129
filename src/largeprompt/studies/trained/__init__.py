"""Small transformers trained on in-context regression."""
