"""Sphinx configuration: MyST pages and the API from the docstrings."""

project = "largeprompt"
author = "The largeprompt maintainers"
copyright = "2026, the largeprompt maintainers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "largeprompt"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
autodoc_typehints = "none"
napoleon_google_docstring = False
exclude_patterns = ["_build"]
