"""5. Reading the ledger with SQL: the rollouts, groups, batches and policies of a run are rows of a database.

    python examples/5_reading_the_ledger.py

A run's ledger is a SQLite file, or a schema of a PostgreSQL database. You can read it at any time, also while the run
is active: readers do not block writers. Tokens, log-probs and pictures are in blobs, which the rows name;
`quartet ledger export` writes them as JSON lines, Parquet or chats. `quartet/ledger/schema.py` declares every column.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from quartet.recipe.file import load_recipe
from quartet.runtime.run import run_recipe

RUN = Path("runs/tutorial-5")
SETTINGS = ["rollout.brancher=none", "train.max_train_steps=5", "evaluation.before_and_after=false"]
QUESTIONS = {
    "Success by family, in training": """
        SELECT family, count(*) AS rollouts, round(avg(success), 2) AS success, round(avg(turns), 1) AS turns
        FROM trajectories WHERE counted AND purpose = 'train' GROUP BY family ORDER BY success""",
    "States of the groups, with the reasons for dropping": """
        SELECT state, reason, count(*) AS groups FROM groups GROUP BY state, reason ORDER BY groups DESC""",
    "Trajectories of each train step": """
        SELECT batches.train_step, count(*) AS trajectories, sum(trajectories.response_tokens) AS tokens,
               batches.start_version - min(trajectories.oldest_version) AS largest_lag
        FROM batches JOIN uses ON uses.batch_id = batches.id JOIN trajectories ON trajectories.id = uses.trajectory_id
        WHERE batches.state = 'committed' AND NOT uses.voided GROUP BY batches.id ORDER BY batches.train_step""",
    "Trajectories trained twice (none: a unique index of the ledger prevents it)": """
        SELECT trajectory_id, count(*) AS times FROM uses WHERE role = 'fresh' AND NOT voided
        GROUP BY trajectory_id HAVING times > 1""",
}


def main() -> None:
    run_recipe(load_recipe(Path("locks_forks"), SETTINGS), RUN, resume=False, fresh=True, quiet=True)
    with closing(sqlite3.connect(f"file:{RUN / 'ledger.sqlite'}?mode=ro", uri=True)) as connection:
        for question, query in QUESTIONS.items():
            rows = connection.execute(query)
            print(f"\n{question}\n  {'  '.join(column[0] for column in rows.description)}")
            for row in rows:
                print("  " + "  ".join(map(str, row)))


if __name__ == "__main__":
    main()
