"""One TOML file per row of the paper's tables; way and shot are arguments."""
