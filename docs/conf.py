"""How Sphinx builds the site: `make docs`. Tutorials are programs in examples/tutorials, and run while it is built."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))
matplotlib.use("Agg")

import csn  # noqa: E402

project = "csn"
author = "The csn authors"
copyright = "2026, the csn authors"
version = release = csn.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "matplotlib.sphinxext.plot_directive",
    "sphinx_gallery.gen_gallery",
    "mathml",  # equations without a script from elsewhere
    "plain_docstrings",  # docstrings are text, not reStructuredText
    "files_of_the_project",  # links to files that are not pages
    "drawing_page",  # the page that learns drawings, exported while the site is built
]
exclude_patterns = ["_build", "tutorials/*.py.md5", "tutorials/**/*.ipynb"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

# MyST: equations, definition lists, links to headings.
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence", "attrs_block"]
myst_heading_anchors = 4
myst_url_schemes = {"http": None, "https": None, "mailto": None, "project-file": None}

# API reference: docstrings are in Google style.
default_role = "code"
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = True

sphinx_gallery_conf = {
    "examples_dirs": [str(HERE.parent / "examples" / "tutorials")],
    "gallery_dirs": ["tutorials"],
    "filename_pattern": r"/\d\d_\w+\.py",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "capture_repr": (),
    "remove_config_comments": True,
    "copyfile_regex": r".*\.toml",
}

plot_html_show_formats = False
plot_html_show_source_link = False
plot_formats = [("png", 110)]
plot_rcparams = {"font.size": 9}

html_math_renderer = "mathml"

html_theme = "furo"
html_title = "csn"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"sidebar_hide_name": False, "navigation_with_keys": True}
html_show_sourcelink = False
html_copy_source = False
