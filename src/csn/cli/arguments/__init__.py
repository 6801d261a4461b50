"""The arguments of each command, one module per command. They import neither torch nor any part of csn."""
