"""Views of a run for people: status, alarms, comparison, figures, audit, sinks."""
