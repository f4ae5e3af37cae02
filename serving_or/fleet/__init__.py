"""The fleet: how many GPUs, and which requests together.

Staffing under randomness, fleets of mixed GPUs, and batching with a growing KV cache.
"""

# in the order in which one meets them
__all__ = []
