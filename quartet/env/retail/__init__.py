"""A shop whose customers are helped in dialogues: its database and tools, its tasks, and scripted customers."""
