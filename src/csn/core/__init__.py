"""The paper, self-contained: neurons, conditioning, memory and the model that joins them."""
