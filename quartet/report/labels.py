"""Names of the numbers that several displays show. Each definition has one name; if a number covers recent records
only, its name states how many."""

from quartet.report.standings import RECENT_ROLLOUTS, RECENT_TRAIN_STEPS

RECENT_SUCCESS = f"training success, newest {RECENT_ROLLOUTS}"
"""Success rate of the newest countable training rollouts of one policy."""
RECENT_LAG = f"mean lag, newest {RECENT_TRAIN_STEPS} steps"
"""Mean lag in train steps, over the fresh trajectories of the newest train steps of one policy."""
TRAINING_ROLLOUTS = "training rollouts"
"""Number of training rollouts that ended since the run began; each counts once, without retries and late records.
Evaluations and demonstrations are not counted."""
HELD_OUT = "held-out success, greedy"
"""Success rate of greedy decoding on held-out seeds, averaged over task families."""
HELD_OUT_SAMPLED = "held-out success, sampled"
"""Success rate at the training temperature on held-out seeds, averaged over task families."""
