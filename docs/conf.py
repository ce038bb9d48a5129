"""Sphinx configuration: MyST pages, the API from the docstrings, and one bibliography."""

project = "largeprompt"
author = "The largeprompt maintainers"
copyright = "2026, the largeprompt maintainers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "sphinxcontrib.bibtex"]
bibtex_bibfiles = ["references.bib"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "largeprompt"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
autodoc_typehints = "none"
napoleon_google_docstring = False
exclude_patterns = ["_build"]
