"""Web page on which a person acts in an environment (`quartet env play`)."""
