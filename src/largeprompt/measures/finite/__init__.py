"""Measures with finitely many atoms: discrete laws, and prompts."""
