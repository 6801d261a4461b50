"""Collect the results of the long attacks in one result file, and write them as the table of docs/hardening.md.

python tools/hardening.py --commit COMMIT fuzz.json kills.json ...    # adds the attacks' files, and fills the page
python tools/hardening.py                                             # fills the page
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "hardening" / "long_runs.json"
PAGE = ROOT / "docs" / "hardening.md"
BEGIN, END = "<!-- table of the long runs: tools/hardening.py -->\n", "<!-- end -->"
FOLDERS = re.compile(r"(?<![\w/])(?:/[\w.+-]+)+/")  # of the machine, before the name of a file
WORDS = {
    "pickle": "pickles of arrays",
    "task_file": "task files, also signed anew",
    "checkpoint": "checkpoints, also signed anew",
    "model": "trained models, signed anew and opened",
    "result_file": "result files",
    "config": "configurations",
    "picture": "pictures: PNG, JPEG, GIF, WebP, BMP, TIFF",
    "csv": "lists in CSV",
    "archive": "archives of pictures",
    "shards": "archives of streamed pictures",
    "table": "tables and vectors of csn adapt",
    "text": "texts, also packed",
    "json_body": "JSON bodies of the service",
    "sentence": "sentences, tables and lists of them",
    "sentence_body": "bodies with sentences for the service",
    "exported_sentence": "sentences of adaLSTM, also in the form for export",
    "page_task_file": "task files opened by the exported page",
}


def rows_of(content: Any) -> list[dict[str, Any]]:
    """The file of an attack as rows of attack, tries, held and minutes."""
    if isinstance(content, list):
        return [row for part in content for row in rows_of(part)]
    if "target" in content:
        every = [crash | {"said": FOLDERS.sub("", crash["said"])} for crash in content["crashes"]]
        by_clock = [crash for crash in every if _by_clock(crash)]
        crashes = [crash for crash in every if crash not in by_clock]
        row = {"attack": WORDS[content["target"]], "tries": content["tries"], "held": content["tries"] - len(crashes)}
        more = {"engine": content["engine"], "crashes": crashes, "ended by the clock": by_clock}
        if "processor minutes" in content:
            more["processor minutes"] = content["processor minutes"]
        return [row | {"minutes": content["minutes"]} | more] if content["tries"] else []
    if "cases" in content:
        failed = sum(
            count for status, count in content["statuses"].items() if status.startswith("5") and status != "503"
        )
        row = {"attack": "requests made from the API's description", "tries": content["cases"]}
        return [
            row | {"held": content["cases"] - failed, "minutes": content["minutes"], "statuses": content["statuses"]}
        ]
    return [content]


def _by_clock(crash: dict[str, Any]) -> bool:
    """Whether an input failed only by running out of time, which on a loaded machine says nothing about it."""
    return "Traceback" not in crash["said"] and (crash["code"] == -14 or "libFuzzer: timeout" in crash["said"])


def merged(rows: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Old and new rows by attack. Every run is kept; a file that is given twice counts once."""
    every = [*rows, *(row for row in new if row not in rows)]
    order = {attack: place for place, attack in reversed(list(enumerate(row["attack"] for row in every)))}
    return sorted(every, key=lambda row: order[row["attack"]])


def table(rows: list[dict[str, Any]]) -> str:
    """The rows for the page: one per attack, over all of its runs."""
    lines = ["| attack | tries | held | minutes | of the processor | commits |", "|---|---:|---:|---:|---:|---|"]
    for attack in dict.fromkeys(row["attack"] for row in rows):
        runs = [row for row in rows if row["attack"] == attack]
        tries, held, minutes, processor = (
            sum(run.get(name, 0) for run in runs) for name in ("tries", "held", "minutes", "processor minutes")
        )
        commits = " ".join(f"`{commit[:7]}`" for commit in dict.fromkeys(run["commit"] for run in runs))
        measured = f"{processor:.1f}" if processor else ""
        lines.append(f"| {attack} | {tries:,} | {held:,} | {minutes:.1f} | {measured} | {commits} |")
    return "\n".join(lines) + "\n"


def filled(page: str, rows: list[dict[str, Any]]) -> str:
    """The page with the table of these rows."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: BEGIN + table(rows) + END, page, flags=re.DOTALL)


def main() -> None:
    """Add the given files to the result file, and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--commit", help="that was attacked")
    given = parser.parse_args()
    if given.files and not given.commit:
        parser.error("give the attacked commit with --commit")
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() else []
    new = [row | {"commit": given.commit} for path in given.files for row in rows_of(json.loads(path.read_text()))]
    rows = merged(rows, new)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({"study": "hardening", "rows": rows}, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
