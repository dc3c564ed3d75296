"""Whether a file holds the data set it is named after.

The site the files come from publishes no checksums, and the same data may be compressed in different ways. Compared
is the *parsed content*: its SHA-256 where it is known beforehand, otherwise shape, number of nonzeros and label
counts, and from the first use on the hash that was recorded then.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trsvr._files import written_beside
from trsvr.datasets import cache
from trsvr.datasets.errors import ContentError
from trsvr.datasets.registry import DataFile

_log = logging.getLogger("trsvr")


def content_sha256(X: Any, y: NDArray[Any]) -> str:
    """Hash of a matrix and its labels, the same for every way of storing them.

    Hashed are the shape and, in little-endian byte order, the row ends (int64), columns (int32) and values (float64) of
    the nonzero entries in CSR order, then the labels (float64).
    """
    import scipy.sparse

    rows = scipy.sparse.csr_array(X)
    if not rows.has_canonical_format or (rows.data == 0).any():
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    digest = hashlib.sha256(f"trsvr content 1: {rows.shape[0]} x {rows.shape[1]}\n".encode())
    for array, kind in ((rows.indptr, "<i8"), (rows.indices, "<i4"), (rows.data, "<f8"), (y, "<f8")):
        digest.update(np.ascontiguousarray(array, dtype=kind).data)
    return digest.hexdigest()


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Hash of the bytes of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def facts_of(X: Any, y: NDArray[np.float64]) -> dict[str, Any]:
    """What is compared: plain numbers that can be written as JSON."""
    labels, counts = np.unique(y, return_counts=True)
    return {
        "rows": int(X.shape[0]),
        "columns": int(X.shape[1]),
        "nonzeros": int(X.nnz),
        "labels": [[float(label), int(count)] for label, count in zip(labels, counts, strict=True)],
        "content_sha256": content_sha256(X, y),
    }


def check(file: DataFile, facts: dict[str, Any], path: str | os.PathLike[str]) -> str:
    """Refuse content that is not the data set's; returns a phrase that says how it was checked."""
    found = facts["content_sha256"]
    if found in file.content:
        return "content hash known and equal"
    labels = dict(facts["labels"])
    known = dict(file.labels)
    if not all(known.values()):
        labels = dict.fromkeys(labels, 0)  # how often they appear is not known: only which they are
    for what, got, expected in (
        ("rows", facts["rows"], file.rows),
        ("columns", facts["columns"], file.columns),
        ("nonzeros", facts["nonzeros"], file.nonzeros),
        ("label counts", _counts(labels), _counts(known)),
    ):
        if expected and got != expected:
            raise ContentError(path, None, f"this is not {file.title}: {got} {what}, expected {expected}")
    if file.content_is_final:
        raise ContentError(
            path,
            None,
            f"this is not {file.title}: shape and labels agree, but the content's sha256 is {found[:16]}…, expected "
            f"{file.content[0][:16]}…; trsvr.datasets.read_libsvm reads any file",
        )
    return _compare_with_first_use(file, found, path)


def _counts(labels: dict[float, int]) -> str:
    return ", ".join(f"{label:g}: {count}" for label, count in sorted(labels.items()))


def _compare_with_first_use(file: DataFile, found: str, path: str | os.PathLike[str]) -> str:
    root = cache.data_folder()
    if root is None:
        return "shape, nonzeros and labels agree; the hash is not known and could not be recorded"
    note = root / "first-use" / f"{file.upstream}.json"
    before = _recorded(note)
    if before is None:
        today = datetime.date.today().isoformat()
        note.parent.mkdir(exist_ok=True)
        with written_beside(note) as place:
            place.write_text(json.dumps({"content_sha256": found, "date": today}), encoding="utf-8")
        _log.info("%s: no checksum is published; shape and labels agree, hash %s… recorded", path, found[:16])
        return f"shape, nonzeros and labels agree; no checksum is published, hash recorded on first use ({today})"
    expected, date = before
    if expected != found:
        raise ContentError(
            path,
            None,
            f"the content's sha256 is {found[:16]}…, but {expected[:16]}… was recorded on first use ({date}); if the "
            f"change is right, remove {note}",
        )
    return f"hash equal to the one recorded on first use ({date})"


def _recorded(note: Path) -> tuple[str, str] | None:
    try:
        noted = json.loads(note.read_text(encoding="utf-8"))
        return str(noted["content_sha256"]), str(noted["date"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # an unreadable note is as good as none
