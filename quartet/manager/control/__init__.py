"""Control: choice of the next task, of its number of rollouts, and of its turn limit."""
