"""Experts of a Mixture-of-Experts model, over time.

How many GPUs each expert gets as the load drifts.
"""

from .certificate import Certificate, run
from .communication import NodePlacement, place_on_nodes
from .diagnosis import Diagnosis, StepTime, balance_losses, break_even, diagnose, noise_floor
from .experts_and_kv_cache import SharedMemory, share_memory
from .hardness import place_exact
from .hindsight import optimum
from .maps import ExpertMap, VllmPolicy, check_map, read_map, rebalance_experts, write_map
from .model import Problem, Schedule
from .next_window import (
    Backtest,
    Keep,
    Link,
    MapPolicy,
    OnePerGpu,
    Rebuild,
    Relabelled,
    Repair,
    backtest,
    cautious,
    ranges,
)
from .policies import Chase, Myopic, Never, Policy
from .pools import PoolPlacement, place_pool
from .predictions import Follow, Mix, Rounded, ewma, last, seasonal
from .recordings import RecordedLoads, read_loads
from .regularized_greedy import RegularizedGreedy, ReverseEntropy
from .relaxation import Relaxation, relax
from .repair import RepairPlan, plan, relabel, transfers
from .replicas import ReplicaPlan, legal_redundant, rebuild, replica_counts
from .rounding import Credit, Hysteresis, Rounding, Threshold
from .sizes_and_pools import ExpertPool, PoolSchedule, run_pool
from .static import StaticPlacement, place

# in the order in which one meets them
__all__ = [
    "Problem",
    "Schedule",
    "place",
    "place_exact",
    "StaticPlacement",
    "relax",
    "Relaxation",
    "run",
    "Never",
    "Chase",
    "Myopic",
    "RegularizedGreedy",
    "ReverseEntropy",
    "Policy",
    "Certificate",
    "Threshold",
    "Hysteresis",
    "Credit",
    "Rounding",
    "optimum",
    "Follow",
    "last",
    "ewma",
    "seasonal",
    "Mix",
    "Rounded",
    "legal_redundant",
    "replica_counts",
    "rebuild",
    "ReplicaPlan",
    "plan",
    "RepairPlan",
    "transfers",
    "relabel",
    "read_loads",
    "RecordedLoads",
    "read_map",
    "write_map",
    "check_map",
    "ExpertMap",
    "VllmPolicy",
    "rebalance_experts",
    "backtest",
    "Backtest",
    "Link",
    "MapPolicy",
    "Keep",
    "Rebuild",
    "Relabelled",
    "Repair",
    "OnePerGpu",
    "cautious",
    "ranges",
    "diagnose",
    "Diagnosis",
    "balance_losses",
    "noise_floor",
    "StepTime",
    "break_even",
    "share_memory",
    "SharedMemory",
    "ExpertPool",
    "PoolSchedule",
    "run_pool",
    "place_pool",
    "PoolPlacement",
    "place_on_nodes",
    "NodePlacement",
]
