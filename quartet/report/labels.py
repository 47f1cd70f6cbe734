"""Names of the numbers that several displays show: one name per definition, with its window."""

from quartet.report.standings import RECENT_ROLLOUTS, RECENT_TRAIN_STEPS

RECENT_SUCCESS = f"training success, newest {RECENT_ROLLOUTS}"
"""Success rate of the newest countable training rollouts of one policy."""
RECENT_LAG = f"mean lag, newest {RECENT_TRAIN_STEPS} steps"
"""Mean lag in versions, over the fresh trajectories of the newest train steps of one policy."""
TRAINING_ROLLOUTS = "training rollouts"
"""Training rollouts ended since the run began, each once; no retries, late records, evaluations, demonstrations."""
HELD_OUT = "held-out success"
"""Mean over families of the greedy success rate."""
HELD_OUT_SAMPLED = "held-out success, sampled"
"""Mean over families of the success rate at the training temperature."""
