"""One file per question. `python -m benchmarks.NAME` prints a table, `--json` one line of JSON at the end."""

from quartet.native.memory_allocator import use_huge_pages

use_huge_pages()  # as in the processes of a run
