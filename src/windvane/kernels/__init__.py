"""All compiled code. Modules are imported when the first policy or environment is built: ``import windvane`` is quick."""
