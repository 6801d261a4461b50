"""Encoders turn sentences, photographs or any other inputs into vectors."""
