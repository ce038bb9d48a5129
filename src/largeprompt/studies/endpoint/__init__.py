"""C6: where the infinite-prompt flow ends."""
