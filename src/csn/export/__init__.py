"""A trained CSN outside Python: graphs, and a page that needs no server."""
