"""One file per question. `python -m benchmarks.NAME` prints a table, `--json` one line of JSON at the end."""
