"""Data manager: control, filters, replay, stragglers, admission, evaluation, retention."""
