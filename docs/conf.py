"""Sphinx configuration: MyST pages, a page for each public object, an executed gallery, one
bibliography; no network needed.
"""

import html
import os
import re
import shutil
from pathlib import Path

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util.logging import getLogger

# for the gallery: one thread, and no progress bars on the page
os.environ |= {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
# pages of objects that are gone
shutil.rmtree(Path(__file__).parent / "reference" / "generated", ignore_errors=True)

project = "largeprompt"
author = "The largeprompt maintainers"
copyright = "2026, the largeprompt maintainers"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinxcontrib.bibtex",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery"]
templates_path = ["_templates"]
bibtex_bibfiles = ["references.bib"]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "largeprompt"
html_static_path = ["_static"]
html_css_files = ["largeprompt.css"]
html_math_renderer = "mathml"

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
autodoc_typehints = "none"
napoleon_google_docstring = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 600,
    "doc_module": ("largeprompt",),
    "prefer_full_module": {r"largeprompt\."},
    "backreferences_dir": "auto_gallery/backreferences",
    "abort_on_example_error": True,
}


def mathml(node: nodes.math | nodes.math_block) -> str:
    """Translate LaTeX; norms keep their height, whatever stands between them. What cannot be read
    is a warning.
    """
    # one half is not twelve
    formula = re.sub(r"(\\[td]?frac)(\d)(\d)", r"\1{\2}{\3}", node.astext())
    try:
        result = tex2mathml(formula, as_block=isinstance(node, nodes.math_block))
    except MathError as error:
        getLogger(__name__).warning("%s in %r", error, formula, location=node)
        return f"<code>{html.escape(formula)}</code>"
    return result.replace("<mo>‖</mo>", '<mo stretchy="false">‖</mo>')


def inline_formula(translator, node: nodes.math) -> None:
    """Write an inline formula as MathML, which browsers draw themselves."""
    translator.body.append(mathml(node))
    raise nodes.SkipNode


def displayed_formula(translator, node: nodes.math_block) -> None:
    """Write a displayed formula as MathML, in a box that scrolls where the screen is narrow."""
    label = f' id="{html.escape(node["ids"][0])}"' if node.get("ids") else ""
    translator.body.append(f'<div class="formula"{label}>{mathml(node)}</div>')
    raise nodes.SkipNode


def without_private_fields(app, what, name, thing, options, signature, returns):
    """Leave out the signature of a class that only the library fills: what it holds is in its
    attributes.
    """
    return (
        (None, returns)
        if what == "class" and signature and re.search(r"\b_\w", signature)
        else None
    )


def setup(app) -> None:
    """Register the renderer that ``html_math_renderer`` names, and how signatures are shown."""
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
    app.connect("autodoc-process-signature", without_private_fields)
