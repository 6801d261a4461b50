"""Result files: what they hold, what they must say, and whether they are right."""
