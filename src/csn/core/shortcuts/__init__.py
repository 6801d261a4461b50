"""Exact cheap forms of what the equations say neuron by neuron."""
