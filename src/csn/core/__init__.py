"""The method of the paper, self-contained: neurons, conditioning, memory and the model that combines them."""
