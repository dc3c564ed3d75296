"""What was measured, one JSON object a line, written as soon as it is known.

A line is appended with a single write; a line that a power cut has torn is skipped, and its cell is measured again. A
cell is known by its data, λ, peer and limits, the machine and the versions that took part, so that nothing is mixed up
when the file is continued on another day; the last line of a cell counts.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def identity(**facts: Any) -> str:
    """A short name for a set of facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


class Store:
    """A file of records."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Record]:
        """All whole lines."""
        if not self.path.exists():
            return []
        records = []
        for line in self.path.read_bytes().split(b"\n"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                records.append(found)
        return records

    def latest(self, kind: str) -> dict[str, Record]:
        """By identity, the last record of each."""
        return {record["id"]: record for record in self.read() if record.get("kind") == kind and "id" in record}

    def add(self, record: Record) -> None:
        """Append one, to stay."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        torn = self.path.exists() and self.path.stat().st_size > 0 and not self.path.read_bytes().endswith(b"\n")
        line = ("\n" if torn else "") + json.dumps(record, ensure_ascii=False) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)
