"""PETALS' own parser on the lists of words that come in as JSON.

For each list a JSON line goes out: what the parser made of it (``parsed``), or what it said before
it gave up (``refused``). With ``--server`` the words go on into the server's own checks.
"""

import contextlib
import io
import json
import sys
from unittest import mock

import shims

TOKEN_BYTES = 2 * 256 * 4  # keys and values of a token and block of the tests' model, in float32


class Taken(Exception):
    """The parser has passed the words on."""


def read(words, server):
    """The arguments that PETALS' server would get, or the refusal."""
    from petals.cli import run_server

    def keep(**given):
        raise Taken({k: v for k, v in given.items() if isinstance(v, (int, float, str, list))})

    run_server.Server = constructed if server else keep
    sys.argv = ["run_server", *words]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            run_server.main()
    except Taken as taken:
        return {"parsed": taken.args[0]}
    except SystemExit:
        return {"refused": said.getvalue().strip().splitlines()[-1]}
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    return {"refused": "nothing was parsed"}


def constructed(**given):
    """The server's own constructor, without a network; what it has read of its options."""
    from petals.server import server as module

    module.DHT = module.ReachabilityProtocol = mock.MagicMock()
    module.check_direct_reachability = lambda **more: None
    made = module.Server(**given)
    blocks = made.strict_block_indices
    raise Taken(
        {
            "blocks": None if blocks is None else [blocks.start, blocks.stop],
            "cache_tokens": made._cache_bytes_per_block // TOKEN_BYTES,
            "inference_max_length": made.inference_max_length,
        }
    )


def main():
    """One answer a line."""
    shims.load()
    answers, sys.stdout = sys.stdout, sys.stderr
    server = "--server" in sys.argv[1:]
    for words in json.load(sys.stdin):
        print(json.dumps(read(words, server)), file=answers, flush=True)


if __name__ == "__main__":
    main()
