"""docs/hardening.md has the numbers of the result file, and they are whole."""

from __future__ import annotations

import json

import hardening as tool


def test_the_page_has_the_numbers_of_the_result_file():
    rows = json.loads(tool.RESULTS.read_text(encoding="utf-8"))["rows"]
    page = tool.PAGE.read_text(encoding="utf-8")
    assert tool.filled(page, rows) == page, "run python tools/hardening.py"
    assert all(0 <= row["held"] <= row["tries"] and row["minutes"] >= 0 and len(row["commit"]) == 40 for row in rows)


def test_every_run_of_an_attack_counts_once():
    def row(attack, commit, tries):
        return {"attack": attack, "commit": commit, "tries": tries}

    old = [row("a", "1", 5), row("b", "1", 6)]
    assert tool.merged(old, [row("a", "2", 7), row("b", "1", 8), row("b", "1", 6), row("c", "2", 9)]) == [
        row("a", "1", 5),
        row("a", "2", 7),
        row("b", "1", 6),
        row("b", "1", 8),
        row("c", "2", 9),
    ]


def test_what_the_attacks_write_becomes_rows():
    crashes = [
        {"seed": "a", "code": 1, "said": 'Traceback, File "/home/me/a-b.c/csn/config.py", corpus/../artifact'},
        {"seed": "b", "code": -11, "said": ""},
        {"seed": "c", "code": -14, "said": ""},
        {"seed": "d", "code": 70, "said": "libFuzzer: timeout"},
    ]
    fuzz = [{"target": "csv", "engine": "random", "tries": 10, "minutes": 1.5, "crashes": crashes}]
    api = {"cases": 7, "minutes": 2, "statuses": {"200": 4, "500": 1, "503": 2}}
    [first, second] = tool.rows_of([fuzz, api])
    assert (first["attack"], first["tries"], first["held"]) == ("lists in CSV", 10, 8)
    assert (second["tries"], second["held"]) == (7, 6)
    assert first["crashes"][0]["said"] == 'Traceback, File "config.py", corpus/../artifact'
    old, new = first | {"commit": "0" * 40}, first | {"commit": "1" * 40, "processor minutes": 0.25}
    assert tool.table([old]).splitlines()[-1] == "| lists in CSV | 10 | 8 | 1.5 |  | `0000000` |"
    [line] = tool.table([old, new, new | {"processor minutes": 0.5}]).splitlines()[2:]
    assert line == "| lists in CSV | 30 | 24 | 4.5 | 0.8 | `0000000` `1111111` |"
    assert tool.rows_of([fuzz[0] | {"tries": 0}]) == [], "its time was up before it began"
