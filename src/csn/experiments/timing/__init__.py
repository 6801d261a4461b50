"""What adaptation costs, as a ratio to the same networks without it."""
