"""What all parts stand on: import it from its modules, such as ``serving_or.tools.data``."""

__all__ = []
