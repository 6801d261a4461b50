"""Parts that this package adds to csn; its entry points in pyproject.toml name them."""
