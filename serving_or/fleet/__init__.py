"""The fleet: how many GPUs, and which requests together.

Staffing under randomness, fleets of mixed GPUs, and batching with a growing KV cache.
"""

from .kv_cache import (
    Batching,
    FCFS,
    MCSF,
    Requests,
    Timetable,
    cache_tokens,
    check_starts,
    schedule,
    volume_bound,
)
from .load_dependent_service import (
    BatchingServer,
    Engine,
    ItlFit,
    ReplicaCount,
    SteppedServer,
    batching_server,
    fewest_replicas,
    fit_itl,
    largest_rate,
    simulate_steps,
)

# in the order in which one meets them
__all__ = [
    "Engine",
    "BatchingServer",
    "batching_server",
    "ReplicaCount",
    "fewest_replicas",
    "largest_rate",
    "ItlFit",
    "fit_itl",
    "SteppedServer",
    "simulate_steps",
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
