"""Configuration of Sphinx; `make docs` builds the site."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

import plain_docstrings

import logt

project = "logt"
author = "The logt developers"
version = release = logt.__version__

extensions = ["myst_parser", "plain_docstrings", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
default_role = "code"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_type_aliases = {  # kept as names where `from __future__ import annotations` leaves annotations unevaluated
    name: name
    for name in (
        *("Array", "ArrayLike", "Distances", "Filter", "Floats", "Id", "Ids", "Mask", "Metric", "PhotoFile"),
        *("Progress", "Rerank", "SomeIds", "Vectors", "Verify"),
    )
}
autosummary_ignore_module_all = False
autosummary_context = {"data_names": plain_docstrings.data_names}
suppress_warnings = ["config.cache"]  # of this function
maximum_signature_line_length = 90
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "logt"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_sphinx = False
html_copy_source = False
html_sidebars = {"index": []}
html_theme_options = {
    "github_url": "https://github.com/logt-search/logt",
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
}
