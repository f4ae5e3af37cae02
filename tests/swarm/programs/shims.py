"""What PETALS 2.2 needs to run beside today's hivemind.

PETALS takes names from ``hivemind`` that are now one level deeper, asks the package index for its
own version when it starts, and closes sessions from the garbage collector, which can wait for the
very loop it runs in.
"""

import importlib
import os
import pkgutil

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("BITSANDBYTES_NOWELCOME", "1")


def flatten():
    """Give ``hivemind`` the public names of its parts."""
    import hivemind

    for part in pkgutil.walk_packages(hivemind.__path__, "hivemind."):
        if any(word in part.name for word in ("hivemind_cli", "proto.", "optim", "test")):
            continue
        try:
            module = importlib.import_module(part.name)
        except ImportError:
            continue
        for name, value in vars(module).items():
            if not name.startswith("_") and not hasattr(hivemind, name):
                setattr(hivemind, name, value)


def load():
    """PETALS, ready to be used."""
    flatten()
    petals = importlib.import_module("petals")
    session = importlib.import_module("petals.client.inference_session")
    session._ServerInferenceSession.__del__ = lambda self: None
    run = importlib.import_module("petals.cli.run_server")
    run.validate_version = lambda: None
    return petals
