"""Pictures and a page about runs, for a paper or a colleague: nothing in them points anywhere else.

`reported_run.py` reads a run, `figures.py` draws by means of `drawing.py`, `page.py` puts it together.
"""
