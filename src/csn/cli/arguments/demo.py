"""The arguments of `csn demo`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `csn demo`."""
    command.add_argument(
        "--host", help="address to listen at (default: 127.0.0.1, this machine; of a class the local network's)"
    )
    command.add_argument(
        "--port", type=int, default=8765, help="port to listen on; 0 picks a free one (default: %(default)s)"
    )
    about = "let phones in the local network draw into one memory; the page shows them the way by a QR code"
    command.add_argument("--classroom", action="store_true", help=about)
    command.add_argument("--open", action="store_true", help="open the page in a browser")
    command.add_argument(
        "--data-dir", type=Path, metavar="FOLDER", help="folder for saved tasks (default: csn/demo in your data folder)"
    )
    command.add_argument("--token", help="secret that clients must send (default: none)")
    command.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="further host name under which the server answers, next to localhost; may be repeated",
    )
    command.add_argument("--model", default="characters", help="name of shipped weights (default: %(default)s)")
    command.add_argument("--run", type=Path, metavar="RUN", help="trained run to use instead of shipped weights")
    about = "answer unknown below this similarity (default: the weights' own; for a run, computed at the start)"
    command.add_argument("--unknown-threshold", type=float, metavar="COSINE", help=about)
    command.add_argument("--device", default="cpu", help="cpu, cuda or mps (default: %(default)s)")
