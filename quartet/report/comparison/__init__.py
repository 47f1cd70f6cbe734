"""Comparison of runs: read results from ledgers, group runs that differ only in the seed, compute intervals over seeds.

`results.py` reads one run, `groups.py` groups runs, `intervals.py` computes intervals, `table.py` makes the table.
"""
