"""Quartet trains language and GUI agents with reinforcement learning.

Four modules run at the same time and never wait for each other:

    env/      environment cluster: sessions of real environments behind one small protocol
    rollout/  rollout service: agent loops (coroutines) that talk to engines, one rollout at a time
    data/     data manager: the ledger, admission, control, filter, replay
    train/    trainer: credit -> loss -> step -> commit

They share three things only: rows in the ledger, files those rows point to, and HTTP.
Read `types/` first, then `data/manager.py`, `rollout/worker.py` and `train/trainer.py`: one loop each.
"""

__version__ = "0.1.0"
