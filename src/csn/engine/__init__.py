"""Training, evaluation and what they keep on disk."""
