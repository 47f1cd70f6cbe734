"""The token of a run: made once, readable by its owner only, gone at the end."""

import stat
from concurrent.futures import ThreadPoolExecutor

from quartet.access.token import FILE, forget_token, run_token


def test_programs_that_start_together_have_the_same_token(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        tokens = set(pool.map(lambda _: run_token(tmp_path), range(64)))
    assert len(tokens) == 1 and len(tokens.pop()) >= 32


def test_only_the_owner_reads_it(tmp_path):
    run_token(tmp_path)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_another_run_has_another_token(tmp_path):
    before = run_token(tmp_path)
    forget_token(tmp_path)
    forget_token(tmp_path)
    assert run_token(tmp_path) != before
