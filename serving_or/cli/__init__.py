"""The command line: ``serving-or``.

Each command is a function of a chapter; its signature and its docstring are its options and its help.
"""

__all__ = []
