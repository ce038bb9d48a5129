"""Whole studies: a frozen config in, a labelled dataset out."""
