"""DigiRL's actor, and the part that it needs."""
