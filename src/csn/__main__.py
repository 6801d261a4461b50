"""`python -m csn`: the command line."""

from csn.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
