"""Counts, bounds and packing against enumeration, the peers' rule, and public reports."""

import numpy as np
import pytest

from serving_or.experts.replicas import balancedness, rebuild


def test_the_mean_is_taken_over_gpus_and_layers_not_the_other_way_round():
    assert balancedness([[0, 1], [0, 1]], [[100, 200], [100, 200]], gpus=2) == 0.75


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1])
def test_what_is_no_load_is_refused(bad):
    with pytest.raises(ValueError, match=r"loads\[0, 1\]"):
        rebuild([[1, bad, 3]], gpus=3)
