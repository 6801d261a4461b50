"""Base learners: plain networks whose adapted layers report preactivations and accept shifts."""
