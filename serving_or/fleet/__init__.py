"""The fleet: how many GPUs, and which requests together.

Staffing under randomness, fleets of mixed GPUs, and batching with a growing KV cache.
"""

from .batching_policies import AMax, AMin, Aging, GBA, GSA, SmallestVolume, SortedF
from .gpu_mix import Fleet, GpuMix, mix, read_fleet, roofline, slices_of, write_fleet
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
from .staffing import (
    Queue,
    Staffing,
    abandonment,
    continuous_staffing,
    erlang_a,
    erlang_b,
    erlang_c,
    halfin_whitt,
    square_root_staffing,
    staff,
)

# in the order in which one meets them
__all__ = [
    "erlang_b",
    "erlang_c",
    "erlang_a",
    "abandonment",
    "Queue",
    "staff",
    "Staffing",
    "halfin_whitt",
    "square_root_staffing",
    "continuous_staffing",
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
    "Fleet",
    "GpuMix",
    "mix",
    "read_fleet",
    "write_fleet",
    "roofline",
    "slices_of",
    "Requests",
    "check_starts",
    "schedule",
    "Timetable",
    "FCFS",
    "MCSF",
    "Batching",
    "volume_bound",
    "cache_tokens",
    "SmallestVolume",
    "SortedF",
    "Aging",
    "AMax",
    "AMin",
    "GSA",
    "GBA",
]
