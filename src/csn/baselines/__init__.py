"""The other systems of the paper's tables, as learners of the same interface."""
