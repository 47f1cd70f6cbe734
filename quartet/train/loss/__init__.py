"""Loss terms, one part per file. The loss of a run is the weighted sum of the terms in its recipe."""
