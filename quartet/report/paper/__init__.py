"""Figures and a page about runs, for a paper or a colleague, without external references.

`reported_run.py` reads a run, `figures.py` draws with `drawing.py`, `page.py` builds the page.
"""
