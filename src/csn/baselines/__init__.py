"""The other systems of the paper's tables, with the same interface as CSN."""
