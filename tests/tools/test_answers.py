"What every answer promises: numbers that agree, errors that travel, arguments that are checked."

import pickle

import pytest

from serving_or.tools.answers import Infeasible


def test_errors_travel():
    error = pickle.loads(pickle.dumps(Infeasible("two blocks short", blocks_short=2)))
    assert str(error) == "two blocks short" and error.blocks_short == 2
    with pytest.raises(ValueError):
        raise error
