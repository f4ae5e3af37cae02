"""How many cases a test runs: `make test` samples them, `make test-long` runs them all."""

import os

LONG = bool(os.environ.get("SERVING_OR_LONG"))


def cases(many, few=None):
    """``many`` cases in a long run, else ``few`` (by default one in forty, at least 25).

    For ``@settings(max_examples=cases(4000))`` as for ``range(cases(4000))``; the first cases are
    the same in both.
    """
    return many if LONG else min(many, max(25, many // 40) if few is None else few)
