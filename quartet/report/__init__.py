"""Views of a run for people (status, alarms, comparison, figures, audit), and sinks, which export its records."""
