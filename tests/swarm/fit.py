"""The model t = Σ (hop + τ k) over a chain, fitted to times of chains and tried on others.

A chain is written as ``"A2 B6"``: two blocks on server A, then six on B.
"""

import re
from dataclasses import dataclass

import numpy as np


def read(chain: str) -> list[tuple[str, int]]:
    """The visits of a chain, ``[("A", 2), ("B", 6)]``."""
    visits = []
    for word in chain.split():
        found = re.fullmatch(r"([A-Z])([1-9]\d*)", word)
        if not found:
            raise ValueError(f"{word!r} is no visit; it must be a server and its blocks, as A2")
        visits.append((found[1], int(found[2])))
    return visits


def hops(chain: str) -> int:
    """How many servers a chain visits; one that comes twice counts twice."""
    return len(read(chain))


def design(chains, alike: bool) -> np.ndarray:
    """Visits and blocks of each chain: by server ``(chains, 2n)``, or of all together."""
    names = sorted({name for chain in chains for name, _ in read(chain)})
    rows = np.zeros((len(chains), 2, len(names)))
    for row, chain in zip(rows, chains):
        for name, blocks in read(chain):
            row[:, names.index(name)] += 1, blocks
    return rows.sum(axis=2) if alike else rows.reshape(len(chains), -1)


@dataclass
class Fit:
    """Least squares on the chains in ``fitted``; errors are relative to the measured times."""

    hop: np.ndarray
    tau: np.ndarray
    predicted: np.ndarray
    error: np.ndarray
    fitted: np.ndarray

    def said(self) -> str:
        """Errors of the chains that were fitted, and of those that were not."""
        parts = []
        for which, name in ((self.fitted, "fitted"), (~self.fitted, "not fitted")):
            if which.any():
                e = 100 * np.abs(self.error[which])
                parts.append(
                    f"{which.sum()} {name}: mean {e.mean():.1f} %, largest {e.max():.1f} %"
                )
        return "; ".join(parts)


def fit(chains, times, alike: bool = False, fitted=None) -> Fit:
    """Fit hop and block times to some of the chains, by default to all, and predict all."""
    times = np.asarray(times, float)
    fitted = np.ones(len(chains), bool) if fitted is None else np.asarray(fitted, bool)
    columns = design(chains, alike)
    if np.linalg.matrix_rank(columns[fitted]) < columns.shape[1]:
        raise ValueError("these chains do not tell the servers' hop and block times apart")
    # relative errors, so that a long chain does not count more than a short one
    weight = 1 / times[fitted]
    found = np.linalg.lstsq(columns[fitted] * weight[:, None], np.ones(len(weight)), rcond=None)[0]
    predicted = columns @ found
    hop, tau = found.reshape(2, -1)
    return Fit(hop, tau, predicted, predicted / times - 1, fitted)


def left_out(chains, times, alike: bool = False) -> np.ndarray:
    """Relative error of each chain, predicted from a fit to all others."""
    every = np.arange(len(chains))
    return np.array([fit(chains, times, alike, every != i).error[i] for i in every])
