"""Views of a run for people: status, alarms, comparison, pictures for a paper, audit, sinks."""
