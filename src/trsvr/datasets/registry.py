"""The data sets by name: where they come from, what they must contain, how they are prepared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

SITE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"

SPLITS = ("train", "test")


@dataclass(frozen=True)
class DataFile:
    """One LIBSVM file."""

    upstream: str  # its name on the site it comes from; of a file that no site offers, its own name
    local: str  # name under which a folder may hold it, without ``.bz2``, ``.gz`` or ``.xz``
    rows: int
    columns: int
    nonzeros: int  # 0: not known
    labels: tuple[tuple[float, int], ...]  # and how often they appear; 0: not known
    content: tuple[str, ...] = ()  # SHA-256 of the parsed content, where it is known
    content_is_final: bool = False  # whether nothing but that content is accepted
    downloadable: bool = True  # whether the site offers it

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"{self.upstream} of the LIBSVM collection" if self.downloadable else self.local


@dataclass(frozen=True)
class Entry:
    """One data set."""

    name: str  # what `load` is given
    about: str  # one line for tables
    preprocess: str = "none"  # what ``preprocess="default"`` means
    train: DataFile | None = None  # the file of each split; none for sets that are not read from files
    test: DataFile | None = None
    substitute: str | None = None  # the data set that stands in where a folder holds only that one

    def file(self, split: str) -> DataFile | None:
        """The file of a split."""
        return self.train if split == "train" else self.test


#: SHA-256 of the parsed content (`trsvr.datasets.verify.content_sha256`) of files, by their names upstream.
_CONTENT = {
    "mushrooms": "ee7dccade0b45c9baeb83a053942af05416b58b1672e615ddc6b0c47aa8a2831",
    "phishing": "782356fc49e0ad01900533e1d136f75f93b7d1e9c19ef7e8b5e70166d47aaa0c",
    "madelon": "459f298ae7d3ebaecca36f0b5ce98f9450f6c377a30baed5af3d287a2461b911",
    "madelon.t": "18a1ba5744c32dc065a04055e102f9633fbbd8b4dfa110b3cee17e7cf4677da0",
    "cod-rna": "901480ea5e44825ac23fd01a4691bedb70b51b4cfdd635cc9d5efc218b037ab7",
    "cod-rna.t": "df426f53f7befc4f98e58e9ac4c5e6486dc3a8ad39982882deac09698f94c08b",
    "ijcnn1.bz2": "acd30215f4ae838b33f53b38807b782984f893d5ff6fff003b3ab15239079a69",
    "ijcnn1.t.bz2": "d0cd9b86f2e910d8a2a569854ac178effc430f5ce92b8d26ad9c4e51a103e6c6",
    "covtype.libsvm.binary.bz2": "431463c965c52c8166c2eb947ae7c87ba7bd37b22accc90712236eef5473fd22",
    "covtype.libsvm.binary.scale.bz2": "f65df1273c9527d553dcfeb4442cb770cf12d875dc6d40b9f63ed8bffd2c897a",
    "rcv1-subset-union": "d5f970e7a5d600c9f86a007fb28dcab8f4ed19887703ff2d9943836cd705be5b",
}


def _known(file: DataFile, *, final: bool = True) -> DataFile:
    """The same file with its content; ``final``: nothing else is accepted."""
    return replace(file, content=(_CONTENT[file.upstream],), content_is_final=final)


_ENTRIES = (
    Entry("synthetic", "Gaussian rows with a chosen condition number and Lipschitz constant, logistic labels"),
    Entry(
        "mushrooms",
        "edible or poisonous, indicator columns",
        train=_known(DataFile("mushrooms", "mushrooms.svm", 8124, 112, 170604, ((1, 3916), (2, 4208)))),
    ),
    Entry(
        "phishing",
        "phishing web sites, rows of unit length",
        train=_known(DataFile("phishing", "phishing.svm", 11055, 68, 331650, ((0, 4898), (1, 6157)))),
    ),
    Entry(
        "madelon",
        "artificial, 5 informative columns among 500",
        preprocess="standardize",
        # The known content was made from the text of the UCI repository; the LIBSVM file may differ from it in form.
        train=_known(DataFile("madelon", "madelon.svm", 2000, 500, 999999, ((-1, 1000), (1, 1000))), final=False),
        test=_known(DataFile("madelon.t", "madelon.t.svm", 600, 500, 300000, ((-1, 300), (1, 300))), final=False),
    ),
    Entry(
        "cod-rna",
        "non-coding RNA, raw units",
        preprocess="standardize",
        train=_known(DataFile("cod-rna", "cod-rna.svm", 59535, 8, 476222, ((-1, 39690), (1, 19845)))),
        test=_known(DataFile("cod-rna.t", "cod-rna.t.svm", 271617, 8, 2172614, ((-1, 181078), (1, 90539)))),
    ),
    Entry(
        "ijcnn1",
        "neural network challenge of IJCNN 2001",
        train=_known(DataFile("ijcnn1.bz2", "ijcnn1.svm", 49990, 22, 649869, ((-1, 45137), (1, 4853)))),
        test=_known(DataFile("ijcnn1.t.bz2", "ijcnn1.t.svm", 91701, 22, 1192101, ((-1, 82989), (1, 8712)))),
    ),
    Entry(
        "covtype",
        "forest cover type, class 2 against the rest, raw units",
        preprocess="standardize",
        train=_known(
            DataFile("covtype.libsvm.binary.bz2", "covtype.svm", 581012, 54, 6901775, ((1, 283301), (2, 297711)))
        ),
    ),
    Entry(
        "covtype.scale",
        "forest cover type, columns scaled to [0, 1]",
        train=_known(
            DataFile(
                "covtype.libsvm.binary.scale.bz2", "covtype.scale.svm", 581012, 54, 6940438, ((1, 283301), (2, 297711))
            )
        ),
    ),
    Entry(
        "rcv1",
        "Reuters news, tf-idf, rows of unit length",
        train=DataFile("rcv1_train.binary.bz2", "rcv1.svm", 20242, 47236, 0, ((-1, 0), (1, 0))),
        test=DataFile("rcv1_test.binary.bz2", "rcv1.t.svm", 677399, 47236, 0, ((-1, 0), (1, 0))),
        substitute="rcv1-subset-union",
    ),
    Entry(
        "rcv1-subset-union",
        "five RCV1-v2 topic subsets joined, same vocabulary as rcv1, for which it stands in",
        train=_known(
            DataFile(
                "rcv1-subset-union",
                "rcv1-subset-union.svm",
                23749,
                47236,
                1783774,
                ((-1, 11920), (1, 11829)),
                downloadable=False,
            )
        ),
    ),
    Entry("breast-cancer", "Wisconsin diagnostic, comes with scikit-learn, raw units", preprocess="standardize"),
    Entry("digits-even", "handwritten digits, even or odd, comes with scikit-learn", preprocess="standardize"),
)

ENTRIES = MappingProxyType({entry.name: entry for entry in _ENTRIES})
