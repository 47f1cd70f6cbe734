"""Replay: what was seen before may be trained on again. Each way is a one-class file behind a name."""

from quartet.data.replay.base import NoReplay, Replay
from quartet.data.replay.success_pool import SuccessPool

REPLAYS: dict[str, type[Replay]] = {"none": NoReplay, "success_pool": SuccessPool}
