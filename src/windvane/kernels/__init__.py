"""All compiled code.

The modules are imported when the first policy or environment is built, so that ``import windvane`` is fast.
"""
