"""Training and evaluation, with their files."""
