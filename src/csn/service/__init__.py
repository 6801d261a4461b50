"""The HTTP service and its page: draw, name, recognise. Everything it knows of learning is the classifier."""
