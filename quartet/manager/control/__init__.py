"""Control: choice of the next task, and of its numbers of rollouts and turns."""
