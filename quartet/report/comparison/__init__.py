"""Comparison of runs: results read from their ledgers, runs that differ only in the seed grouped, intervals over seeds.

`results.py` reads one run, `groups.py` groups runs, `intervals.py` computes intervals, `table.py` makes the table.
"""
