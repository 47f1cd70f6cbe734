"""Report of runs, for a paper or a colleague: a self-contained page, and figures as files.

`reported_run.py` reads a run, `figures.py` draws with `drawing.py`, `page.py` builds the page.
"""
