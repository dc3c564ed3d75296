"""Generated rows: well conditioned, badly conditioned, sparse."""

import numpy as np
import scipy.sparse

from benchopt import BaseDataset


class Dataset(BaseDataset):
    """Gaussian rows with column scales from 1 down to 1/√condition, labels from a noisy linear model."""

    name = "Simulated"
    requirements = ("numpy", "scipy")
    parameters = {  # noqa: RUF012
        "n_samples, n_features, condition, density": [
            (20_000, 50, 1.0, 1.0),
            (20_000, 50, 1e4, 1.0),
            (10_000, 5_000, 1.0, 0.01),
        ]
    }
    test_parameters = {  # noqa: RUF012
        "n_samples, n_features, condition, density": [(200, 10, 100.0, 1.0), (200, 30, 1.0, 0.1)]
    }

    def get_data(self):
        """The same rows for the same seed."""
        rng = np.random.default_rng(self.get_seed())
        n, d = self.n_samples, self.n_features
        scales = np.geomspace(1.0, self.condition**-0.5, d)
        if self.density < 1.0:
            X = scipy.sparse.random_array(
                (n, d), density=self.density, format="csr", rng=rng, data_sampler=rng.standard_normal
            )
            X = scipy.sparse.csr_matrix(X.multiply(scales[None, :]))
            X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        else:
            X = rng.standard_normal((n, d)) * scales
        scores = X @ (rng.standard_normal(d) / scales)
        noisy = scores + np.std(scores) * rng.standard_normal(n)
        return {"X": X, "y": np.where(noisy > 0, 1.0, -1.0)}
