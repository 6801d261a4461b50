"""Drawings and photographs."""
