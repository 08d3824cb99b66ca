"""Settings of the documentation site: `make docs` builds it into build/docs, and warnings are errors."""

import sys
from pathlib import Path

import windvane

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "windvane"
author = "The windvane authors"
project_copyright = "The windvane authors, Apache-2.0"
release = version = windvane.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "windvane_site",
]
maximum_signature_line_length = 100
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!windvane\.).*\..*"),  # of other libraries: their documentation is elsewhere
    ("py:class", r"[^.]*"),  # types in words, such as "float, optional", and names of types in signatures
]
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath", "smartquotes"]
myst_heading_anchors = 4  # "page.md#a-heading" leads to headings of the first four levels
highlight_language = "none"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("npt.ArrayLike", "Array", "Index", "Mask", "ArmSet", "Name", "Lanes")}
napoleon_attr_annotations = False
napoleon_google_docstring = False
napoleon_use_param = False  # arguments that share a description stay together
napoleon_use_rtype = False

linkcheck_ignore = [  # examples of addresses
    r"https?://(localhost|127\.0\.0\.1|10\.0\.0\.\d+|[\w.-]+\.(internal|your-company\.com))\b"
]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "windvane"
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["windvane.css"]
