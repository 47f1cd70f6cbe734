"""Names of the numbers that several displays show: one name stands for one definition, and says its window."""

from quartet.report.standings import RECENT_ROLLOUTS, RECENT_TRAIN_STEPS

RECENT_SUCCESS = f"training success, newest {RECENT_ROLLOUTS}"
"""Success rate of the newest countable training rollouts of one policy."""
RECENT_LAG = f"mean lag, newest {RECENT_TRAIN_STEPS} steps"
"""In versions, over the fresh trajectories of the newest train steps of one policy."""
TRAINING_ROLLOUTS = "training rollouts"
"""Those that ended since the run began, each once: retried, late, evaluation and demonstration records are left out."""
HELD_OUT = "held-out success"
"""Greedy, mean over families."""
HELD_OUT_SAMPLED = "held-out success, sampled"
"""At the training temperature, mean over families."""
