"""Sentences with one word blanked, and running text."""
