"""Engine backends: one part per file."""
