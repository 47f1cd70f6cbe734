"""Tasks in the format of Harbor: commands of an agent in a folder of its own, scored by the task's tests."""
