"""Pictures of tasks, runs and results; nothing here reads or writes files."""
