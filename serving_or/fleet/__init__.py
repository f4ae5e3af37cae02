"""The fleet: how many GPUs, and which requests together.

Staffing under randomness, fleets of mixed GPUs, and batching with a growing KV cache.
"""

from .kv_cache import (
    FCFS,
    MCSF,
    Batching,
    Requests,
    Timetable,
    cache_tokens,
    check_starts,
    schedule,
    volume_bound,
)

# in the order in which one meets them
__all__ = [
    "Requests",
    "check_starts",
    "schedule",
    "Timetable",
    "FCFS",
    "MCSF",
    "Batching",
    "volume_bound",
    "cache_tokens",
]
