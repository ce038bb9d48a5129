"""Whole studies: a frozen config in, a labeled dataset out."""
