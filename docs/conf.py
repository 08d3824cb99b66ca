"""Settings of the documentation site: `make docs` builds it into build/docs, and warnings are errors."""

import windvane

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
]
nitpicky = True
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath", "smartquotes"]
myst_heading_anchors = 4  # "page.md#a-heading" leads to headings of the first four levels
highlight_language = "none"

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "windvane"
html_static_path = ["_static"]
html_css_files = ["windvane.css"]
