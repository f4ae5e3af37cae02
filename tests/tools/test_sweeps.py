"""What the chapter claims, on many numbers; and what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_or.tools.sweeps import in_sweeps

moderate = st.integers(0, 10**6)


@given(moderate, moderate)
def test_time_and_rate_count_alike(rate, time):
    assert in_sweeps(rate, time) == in_sweeps(time, rate)
    assert in_sweeps(2 * rate, time) == 2 * in_sweeps(rate, time)


@pytest.mark.parametrize("rate, time", [(-1, 1), (1, -1)])
def test_a_negative_number_is_refused(rate, time):
    with pytest.raises(ValueError, match="at least 0"):
        in_sweeps(rate, time)
