"""Rapid adaptation with conditionally shifted neurons (Munkhdalai et al., ICML 2018)."""

__version__ = "0.1.0"
