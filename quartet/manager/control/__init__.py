"""Control: which task comes next, how many rollouts and how many turns it gets."""
