"""Labeled datasets in, figures and pages out; nothing here needs torch."""
