"""How the attacks here end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def ended(rows: list[dict[str, Any]], out: Path | None) -> int:
    """Print what came of the attacks, keep it in a file, and return 1 if one of them did not hold.

    Args:
        rows: One row of results for each attack.
        out: A JSON file, or None for none.
    """
    text = json.dumps(rows)
    print(text)
    if out:
        out.write_text(text + "\n", encoding="utf-8")
    return int(any(row["held"] < row["tries"] for row in rows))
