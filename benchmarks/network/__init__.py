"""A network of nodes on one machine that can be cut, delayed and made lossy, for tests of partitions."""
