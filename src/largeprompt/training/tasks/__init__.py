"""In-context learning tasks."""
