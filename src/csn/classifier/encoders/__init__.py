"""What turns sentences, photographs or anything else into vectors."""
