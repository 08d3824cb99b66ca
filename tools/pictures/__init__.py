"""The pictures of the documentation, drawn by ``python tools/draw_docs.py``.

Each module has functions that return an SVG text. All numbers come from windvane, with fixed seeds.
"""
