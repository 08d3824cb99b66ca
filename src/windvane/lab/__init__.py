"""Experiments: a spec is cut into cells, run on all cores, stored, summarised and drawn.

Modules are imported by name (``from windvane.lab.spec import Spec``), so that nothing is loaded that is not used.
"""
