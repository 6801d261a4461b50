"""Faster exact forms of equations that the paper states neuron by neuron."""
