"""A page as a web app: a folder for any web server. A browser can install the app and open it offline."""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from pathlib import Path
from typing import Any

from csn.engine.checkpoint import write_atomically

LINK = '<link rel="icon"'
WORKER = '<script type="module">navigator.serviceWorker?.register("sw.js");</script>'


def manifest() -> dict[str, Any]:
    """The manifest: name, description and icon of the installed app."""
    return {
        "name": "csn: draw it once",
        "short_name": "csn",
        "description": "Learns what you draw from a single drawing, in this browser.",
        "display": "standalone",
        "background_color": "#f3f1ec",
        "theme_color": "#2f45c5",
    }


def write_app(page: str, folder: Path) -> list[Path]:
    """Write a page as an app: the page, its manifest, its icon and the service worker that keeps it offline."""
    icon = (resources.files("csn.service") / "page" / "icon.svg").read_text(encoding="utf-8")
    worker = (resources.files("csn.export") / "web" / "sw.js").read_text(encoding="utf-8")
    page = page.replace(LINK, f'<link rel="manifest" href="manifest.webmanifest">\n  {WORKER}\n  {LINK}', 1)
    shown = {"src": "icon.svg", "sizes": "any", "type": "image/svg+xml"}
    about = manifest() | {"id": "./", "start_url": "./", "scope": "./", "icons": [shown]}
    digest = hashlib.sha256(page.encode()).hexdigest()[:16]
    contents = {
        "index.html": page,
        "manifest.webmanifest": json.dumps(about, indent=2),
        "icon.svg": icon,
        "sw.js": worker.replace("VERSION", digest),
    }
    for name, content in contents.items():
        write_atomically(folder / name, content.encode())
    return [folder / name for name in contents]
