"""Every package that csn needs: its version, licence and known vulnerabilities. Works offline.

    python tools/dependencies.py                                # of the packages installed here
    python tools/dependencies.py --advisories all.zip           # with the advisories of osv.dev, downloaded once
    python tools/dependencies.py --hashes > constraints-hashes.txt   # asks the package index

The advisories are `https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip`, or a folder of such JSON files.
The exit code is 1 if one concerns an installed version.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]


def plain(name: str) -> str:
    """A package's name in the one form that indexes compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(extras: Iterable[str], name: str = "csn") -> dict[str, str]:
    """Name and version of all direct and indirect dependencies of an installed package with these extras."""
    found: dict[str, str] = {}
    waiting = [(name, frozenset(extras))]
    seen = set(waiting)
    while waiting:
        current, chosen = waiting.pop()
        try:
            installed = metadata.distribution(current)
        except metadata.PackageNotFoundError:
            continue
        if plain(current) != plain(name):
            found[plain(current)] = installed.version
        for line in installed.requires or ():
            wanted = Requirement(line)
            if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in (*chosen, "")):
                step = (wanted.name, frozenset(wanted.extras))
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
    return dict(sorted(found.items()))


def licence(name: str) -> str:
    """The licence of a package according to its metadata."""
    about = metadata.metadata(name)
    if expression := about.get("License-Expression"):
        return expression
    classified = [
        text.rpartition(" :: ")[2] for text in about.get_all("Classifier", []) if text.startswith("License ::")
    ]
    if classified:
        return ", ".join(classified)
    lines = (about.get("License") or "").strip().splitlines()
    return lines[0][:60] if lines else "not stated"


def advisories(place: Path) -> Iterator[dict[str, Any]]:
    """The advisories of a zip file or folder of JSON files in OSV's format."""
    if place.is_dir():
        for path in sorted(place.glob("*.json")):
            yield json.loads(path.read_text(encoding="utf-8"))
        return
    with zipfile.ZipFile(place) as archive:
        for name in archive.namelist():
            yield json.loads(archive.read(name))


def concerns(advisory: dict[str, Any], packages: dict[str, str]) -> list[str]:
    """The packages that an advisory concerns in the given versions."""
    if "withdrawn" in advisory:
        return []
    found = []
    for affected in advisory.get("affected", ()):
        package = affected.get("package", {})
        name = plain(package.get("name", ""))
        if package.get("ecosystem") != "PyPI" or name not in packages:
            continue
        version = packages[name]
        if version in affected.get("versions", ()) or any(
            _within(version, span) for span in affected.get("ranges", ()) if span.get("type") == "ECOSYSTEM"
        ):
            found.append(name)
    return found


def _within(version: str, span: dict[str, Any]) -> bool:
    """Whether a version lies between 'introduced' and 'fixed' (or 'last_affected') of a range."""
    here, inside = Version(version), False
    for event in span.get("events", ()):
        try:
            if "introduced" in event:
                inside = inside or event["introduced"] == "0" or here >= Version(event["introduced"])
            elif "fixed" in event:
                inside = inside and here < Version(event["fixed"])
            elif "last_affected" in event:
                inside = inside and here <= Version(event["last_affected"])
        except InvalidVersion:  # some old versions are not valid
            continue
    return inside


def hashes() -> str:
    """The files that pip would install here, each pinned to its version and its sha256."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    command += ["-c", str(ROOT / "constraints.txt"), f"{ROOT}[dev]"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    lines = [
        f"# For Python 3.{sys.version_info[1]} on {sys.platform}, made by tools/dependencies.py --hashes",
        "# torch is not listed because each kind of machine has its own wheel:",
        "#   pip install -c constraints.txt torch",
        "#   pip install --no-deps --require-hashes -r constraints-hashes.txt",
        "#   pip install --no-deps -e .",
    ]
    for item in sorted(report["install"], key=lambda item: plain(item["metadata"]["name"])):
        digests = item["download_info"].get("archive_info", {}).get("hashes", {})
        if plain(item["metadata"]["name"]) not in ("csn", "torch") and "sha256" in digests:
            lines.append(f"{item['metadata']['name']}=={item['metadata']['version']} --hash=sha256:{digests['sha256']}")
    return "\n".join(lines)


def main() -> int:
    """Print a table of the packages and of their known vulnerabilities."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--extra", action="append", help="an extra of csn; by default all and dev")
    parser.add_argument("--advisories", type=Path, help="a zip file or folder in OSV's format")
    parser.add_argument("--hashes", action="store_true", help="print a file for pip --require-hashes instead")
    given = parser.parse_args()
    if given.hashes:
        print(hashes())
        return 0
    packages = needed(given.extra or ("all", "dev"))
    for name, version in packages.items():
        print(f"{name:28} {version:18} {licence(name)}")
    if given.advisories is None:
        print(f"{len(packages)} packages. Give --advisories to look for known vulnerabilities")
        return 0
    found = [
        (name, one["id"], one.get("summary", ""))
        for one in advisories(given.advisories)
        for name in concerns(one, packages)
    ]
    for name, number, summary in sorted(found):
        print(f"{name} {packages[name]}: {number} {summary}")
    print(f"{len(packages)} packages, {len(found)} known vulnerabilities")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
