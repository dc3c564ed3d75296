"""Real data by name, through `trsvr.datasets`: read from TRSVR_DATA_DIR or the user's cache, else downloaded."""

import scipy.sparse

from benchopt import BaseDataset
from trsvr import datasets


class Dataset(BaseDataset):
    """Binary sets of the LIBSVM collection, prepared as this library does by default."""

    name = "libsvm"
    install_cmd = "conda"
    requirements = ("pip::trsvr", "pip::pooch", "scikit-learn")
    parameters = {  # noqa: RUF012
        "data": ["mushrooms", "phishing", "madelon", "cod-rna", "ijcnn1", "covtype", "covtype.scale", "rcv1"]
    }
    # Comes with scikit-learn: a test asks nobody for a file.
    test_parameters = {"data": ["breast-cancer"]}  # noqa: RUF012

    def get_data(self):
        """Rows and labels."""
        found = datasets.load(self.data)
        # scikit-learn's solvers do not all take the newer sparse class.
        X = scipy.sparse.csr_matrix(found.X) if scipy.sparse.issparse(found.X) else found.X
        return {"X": X, "y": found.y}
