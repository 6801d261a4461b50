"""One module per command. It turns options into objects, and writes results to the terminal and to disk."""
