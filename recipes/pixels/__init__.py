"""Recipe `pixels`: a small policy learns to act on MiniWoB++ pages from screenshots alone."""
