"""What the chapter claims, on many numbers; and what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_or.cli.grid import in_grid

moderate = st.integers(0, 10**6)


@given(moderate, moderate)
def test_time_and_rate_count_alike(rate, time):
    assert in_grid(rate, time) == in_grid(time, rate)
    assert in_grid(2 * rate, time) == 2 * in_grid(rate, time)


@pytest.mark.parametrize("rate, time", [(-1, 1), (1, -1)])
def test_a_negative_number_is_refused(rate, time):
    with pytest.raises(ValueError, match="at least 0"):
        in_grid(rate, time)
