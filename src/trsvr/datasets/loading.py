"""`load`: from a name to a `Dataset`."""

from __future__ import annotations

import inspect
import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import DTypeLike, NDArray

from trsvr import _check
from trsvr.datasets import bundled, cache, download, search, verify
from trsvr.datasets import preprocess as preparing
from trsvr.datasets.dataset import DENSE_FROM, Dataset, dense_copy, signs
from trsvr.datasets.errors import ContentError, DataFileError, DataNotFoundError, DownloadError
from trsvr.datasets.generators import GENERATORS
from trsvr.datasets.libsvm import float_type, read_libsvm
from trsvr.datasets.registry import ENTRIES, SPLITS, DataFile, Entry

_log = logging.getLogger("trsvr")


def load(
    name: str,
    *,
    preprocess: str = "default",
    split: str = "train",
    dtype: DTypeLike = np.float64,
    data_dir: str | os.PathLike[str] | None = None,
    **parameters: Any,
) -> Dataset:
    """Load a data set by name.

    Files are looked for in ``data_dir``, in the folder that ``TRSVR_DATA_DIR`` names, in the user's cache, and at last
    on the site of the LIBSVM collection. A folder may hold the names of that site or ``<name>.svm`` (``<name>.t.svm``
    for the test split), plain or with ``.bz2``, ``.gz``, ``.xz``. What was read is kept in the user's cache in a form
    that can be mapped into memory, so the next time takes a moment.

    Parameters
    ----------
    name : str
        One of `list`'s names, or a generator: synthetic, covtype_like, text_like, separable, ill_scaled.
    preprocess : {"default", "none", "standardize", "minmax", "unit-rows", "maxabs"}
        How columns or rows are prepared; what is needed for it is learnt from the training split. "default"
        standardises sets with raw units and leaves the others as distributed. Sparse data is scaled only, never
        shifted.
    split : {"train", "test"}
        Which part.
    dtype : float64 or float32
        Type of X.
    data_dir : str or path, optional
        Folder to look into first.
    **parameters
        Arguments of the generator, where ``name`` is one.

    Returns
    -------
    Dataset

    Raises
    ------
    ValueError
        For arguments that are not accepted, damaged files (`DataFileError`) and files with other content
        (`ContentError`).
    DataNotFoundError
        If there is no file and it cannot be downloaded; the message says which file to put where.
    """
    _check.one_of("name", name, [*ENTRIES, *(other for other in GENERATORS if other not in ENTRIES)])
    _check.one_of("preprocess", preprocess, ("default", *preparing.PREPROCESS))
    _check.one_of("split", split, SPLITS)
    kind = float_type(dtype)
    if name in GENERATORS:
        return _generate(name, preprocess, split, kind, parameters)
    if parameters:
        raise ValueError(f"{name} takes no parameter {next(iter(parameters))!r}: only generators have parameters")
    method = ENTRIES[name].preprocess if preprocess == "default" else preprocess
    if name in bundled.BUNDLED:
        return _load_bundled(name, method, split, kind)
    raw = _read(ENTRIES[name], split, data_dir)
    fit = raw
    if split != "train" and method not in ("none", "unit-rows"):
        fit = _read(raw.entry, "train", data_dir)
    return _prepared(raw, fit, method, kind)


def fetch(name: str, *, split: str = "train", data_dir: str | os.PathLike[str] | None = None) -> RawData | None:
    """Make sure that a data set's file is here and holds what it should; None for sets that need no file.

    Parameters
    ----------
    name, split, data_dir
        As for `load`.
    """
    _check.one_of("name", name, ENTRIES)
    _check.one_of("split", split, SPLITS)
    if ENTRIES[name].train is None:
        _train_only(name, split)
        return None
    return _read(ENTRIES[name], split, data_dir)


def _generate(name: str, method: str, split: str, dtype: np.dtype[Any], parameters: dict[str, Any]) -> Dataset:
    _train_only(name, split)
    generator = GENERATORS[name]
    known = inspect.signature(generator).parameters
    for parameter in parameters:
        _check.one_of(f"parameter of {name}", parameter, known)
    made = generator(**parameters)
    return _prepare_in_memory(made, "none" if method == "default" else method, dtype)


def _load_bundled(name: str, method: str, split: str, dtype: np.dtype[Any]) -> Dataset:
    _train_only(name, split)
    X, labels = bundled.read(name)
    y, label_map = signs(labels, name)
    raw = Dataset(
        X=X,
        y=y,
        name=name,
        source="comes with scikit-learn",
        preprocess="none",
        label_map=label_map,
        sha256=verify.content_sha256(X, labels),
        nonzeros=int(np.count_nonzero(X)),
        description=preparing.describe("none", False),
    )
    return _prepare_in_memory(raw, method, dtype)


def _train_only(name: str, split: str) -> None:
    if split != "train":
        raise ValueError(f"{name} has no {split} split, only train")


def _prepare_in_memory(raw: Dataset, method: str, dtype: np.dtype[Any]) -> Dataset:
    X = preparing.apply(method, preparing.learn(method, raw.X), raw.X)
    said = raw.description if method == "none" else preparing.describe(method, scipy.sparse.issparse(X))
    return replace(raw, X=X.astype(dtype, copy=False), preprocess=method, description=said)


# ---------------------------------------------------------------------------------------- files: found, read, checked


@dataclass(frozen=True)
class RawData:
    """The checked content of one file, before it is prepared."""

    entry: Entry
    split: str
    X: Any
    labels: NDArray[np.float64]
    facts: dict[str, Any]
    path: Path
    checked: str
    substitute_for: str | None = None

    @property
    def source(self) -> str:
        """Where it came from, in words."""
        stands_in = f"substitute for {self.substitute_for}: {self.entry.about}; " if self.substitute_for else ""
        return f"{stands_in}{self.path} ({self.checked})"


def _read(entry: Entry, split: str, data_dir: str | os.PathLike[str] | None) -> RawData:
    """Find a data set's file, or its substitute's, or download it; read and check it."""
    file = _file(entry, split)
    own = search.own_folder()
    for found, path in search.candidates(entry, split, data_dir):
        try:
            raw = _read_checked(found, split, path)
        except DataFileError as error:
            if path.parent != own:
                raise
            # Nothing that does not match stays in the cache; it may have been damaged there, so it is fetched again.
            path.unlink(missing_ok=True)
            _log.warning("%s; removed from the cache", error)
            continue
        return raw if found is entry else replace(raw, substitute_for=file.upstream.removesuffix(".bz2"))
    return _download(entry, split, file, data_dir)


def _file(entry: Entry, split: str) -> DataFile:
    file = entry.file(split)
    if file is None:
        raise ValueError(f"{entry.name} has no {split} split, only train")
    return file


def _read_checked(entry: Entry, split: str, path: Path) -> RawData:
    """The content of a file, from the cache if it was read before."""
    file = _file(entry, split)
    name = cache.key("parsed", verify.file_sha256(path), file.columns)
    kept = cache.fetch(name)
    if kept is not None:
        arrays, facts = kept
        checked = verify.check(file, facts, path)
    else:
        X, labels = read_libsvm(path, n_features=file.columns, two_classes=True)
        facts = verify.facts_of(X, labels)
        checked = verify.check(file, facts, path)
        arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "labels": labels}
        arrays = _kept(name, arrays, facts)
    return RawData(entry, split, _csr(arrays, file.columns), arrays["labels"], facts, path, checked)


def _kept(name: str, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Put arrays into the cache and map them from there, as every later time; where that fails, as they are."""
    cache.store(name, arrays, facts)
    kept = cache.fetch(name)
    return arrays if kept is None else kept[0]


def _csr(arrays: dict[str, NDArray[Any]], columns: int) -> Any:
    X = scipy.sparse.csr_array(
        (arrays["data"], arrays["indices"], arrays["indptr"]), shape=(arrays["indptr"].size - 1, columns), copy=False
    )
    X.has_canonical_format = True  # checked when the file was read
    return X


def _download(entry: Entry, split: str, file: DataFile, data_dir: str | os.PathLike[str] | None) -> RawData:
    if not file.downloadable:
        raise DataNotFoundError(_advice(entry, split, file, data_dir, "no site offers it"))
    try:
        with download.downloaded(file) as path:
            own = path.parents[1]
            try:
                raw = _read_checked(entry, split, path)
            except DataFileError as error:
                reason = f"{error.reason}; the download was not kept"
                raise ContentError(download.address(file), error.line, reason) from error
            os.replace(path, own / path.name)
            return replace(raw, path=own / path.name)
    except DownloadError as error:
        raise DataNotFoundError(_advice(entry, split, file, data_dir, str(error))) from error


def _advice(entry: Entry, split: str, file: DataFile, data_dir: str | os.PathLike[str] | None, reason: str) -> str:
    """Which file to put where, in one sentence."""
    places = [f"{folder}" if folder.is_dir() else f"{folder} (no such folder)" for folder in search.folders(data_dir)]
    looked = " or ".join(places) or "any folder"
    where = search.own_folder() or "a folder that TRSVR_DATA_DIR names"
    return (
        f"{entry.name} ({split}): neither {file.upstream} nor {file.local}[.bz2|.gz|.xz] in {looked}, and {reason}. "
        f"Put {file.upstream} into {where}, or set TRSVR_DATA_DIR to the folder that has it"
    )


# ----------------------------------------------------------------------------------------------------------- prepared


def _prepared(raw: RawData, fit: RawData, method: str, dtype: np.dtype[Any]) -> Dataset:
    """The data set in its final form, from the cache where it was made before."""
    facts = raw.facts
    y, label_map = signs(raw.labels, raw.entry.name)
    # The training rows decide the form, so that both splits have the same.
    dense = fit.facts["nonzeros"] >= DENSE_FROM * fit.facts["rows"] * fit.facts["columns"]
    if method == "none" and not dense and dtype == np.float64:
        X = raw.X
    else:
        X = _final_rows(raw, fit, method, dense, dtype)
    return Dataset(
        X=X,
        y=y,
        name=raw.entry.name,
        source=raw.source,
        preprocess=method,
        label_map=label_map,
        sha256=facts["content_sha256"],
        nonzeros=facts["nonzeros"],
        description=preparing.describe(method, not dense),
        split=raw.split,
    )


def _final_rows(raw: RawData, fit: RawData, method: str, dense: bool, dtype: np.dtype[Any]) -> Any:
    # Numbers that are learnt from sums may differ in their last digits from one machine to another, so this entry is
    # keyed by the content it was made from and is no part of `Dataset.sha256`.
    name = cache.key("prepared", raw.facts["content_sha256"], fit.facts["content_sha256"], method, dense, dtype.str)
    kept = cache.fetch(name)
    if kept is not None:
        arrays, _ = kept
    else:
        rows = dense_copy(raw.X) if dense else raw.X
        learnt_from = rows if fit is raw else (dense_copy(fit.X) if dense else fit.X)
        X = preparing.apply(method, preparing.learn(method, learnt_from), rows).astype(dtype, copy=False)
        arrays = _kept(name, {"X": X} if dense else {"data": X.data, "indices": X.indices, "indptr": X.indptr}, {})
    return arrays["X"] if dense else _csr(arrays, raw.facts["columns"])
