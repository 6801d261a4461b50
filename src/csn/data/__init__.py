"""Data sets as class-indexed tensors, and the episodes drawn from them."""
