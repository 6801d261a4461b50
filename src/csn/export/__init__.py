"""A trained CSN outside Python: ONNX graphs, and a page that needs no server."""
