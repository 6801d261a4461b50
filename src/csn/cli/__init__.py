"""One module a command: options -> objects -> results on the terminal and on disk."""
