"""What the trainer computes in its own way on a GPU: attention over packed branches, scores of tokens, fused layers."""
