"""Runs beside each other: read off their ledgers, grouped by recipe, with intervals over seeds.

`results.py` reads one run, `intervals.py` reckons, `table.py` compares and prints.
"""
