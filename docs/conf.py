"""How Sphinx builds the pages: `make docs`. They are plain Markdown and read as well without it."""

from __future__ import annotations

project = "pyreplog"
author = "the pyreplog authors"
copyright = "the pyreplog authors, Apache License 2.0"
version = release = "0.1.0"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "demo", "changes"]
myst_enable_extensions = ["colon_fence", "fieldlist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository outside docs/

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_theme_options = {"light_css_variables": {"code-font-size": "75%"}}
html_title = "pyreplog"
html_show_sphinx = False
