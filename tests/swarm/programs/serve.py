"""PETALS' own ``run_server`` with the words that follow.

``SERVING_OR_DELAY="hop block"`` makes the server wait that many milliseconds before each step, and
for each block of it: a slower network and a slower device on one machine.
"""

import asyncio
import os

import shims


def delayed(iterate, hop, block):
    """The server's loop over the steps of a session, with a wait before each of them."""

    def run(*, requested_uids, input_iterator, **more):
        async def steps():
            async for step in input_iterator:
                await asyncio.sleep((hop + block * len(requested_uids)) / 1000)
                yield step

        return iterate(requested_uids=requested_uids, input_iterator=steps(), **more)

    return run


def main():
    """Start the server."""
    shims.load()
    from petals.cli import run_server
    from petals.server import handler

    hop, block = map(float, os.environ.get("SERVING_OR_DELAY", "0 0").split())
    if hop or block:
        handler.iterate_rpc_inference = delayed(handler.iterate_rpc_inference, hop, block)
    run_server.main()


if __name__ == "__main__":
    main()
