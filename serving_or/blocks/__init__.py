"""Blocks of a model on servers far apart.

Which server holds which blocks, and which chain of servers serves a request.
"""

from serving_or.tools.answers import Infeasible, NotFound, TooLarge
from serving_or.tools.files import GB, GIB, BadFile
from serving_or.tools.models import A100, CARDS, MIG, Card, Device

from .bounds import Bound, aggregate_bound, best_bound, chain_bound, exit_bound, strip_bound
from .churn import Event, RepairedPlan, churn_changes, plan_anew, reloads, repair, stay
from .cluster import Cluster
from .conservative_greedy import NoPlacement, cg_bp, cg_bprr, guarantee, largest_requests
from .designs import lanes, sweep, uncontended
from .experiment import Comparison, compare_policies
from .failures import RobustPlan, largest_robust, losses, place_robust, robust, surviving
from .flow import coverage, route_exact
from .line_program import milp
from .link_program import enumeration, max_flow_placement
from .petals_rules import (
    Launch,
    PetalsRouting,
    PetalsThroughput,
    launch_commands,
    petals,
    petals_bp,
    read_launch,
    rebalance,
)
from .plan import BadPlan, Chain, NoRoute, Placement, Plan, check
from .renting import Frontier, rental
from .routing import (
    cheapest,
    direct_bound,
    direct_floor,
    lone_bound,
    plan_direct,
    route,
    route_direct,
)
from .search import improve
from .server_chains import (
    ChainQueue,
    JoinFastestFree,
    ServerChains,
    allocate_caches,
    place_chains,
    plan_chains,
)
from .simulation import Arrivals, Change, Fastest, Lengths, Run, WithRoom, simulate
from .tensor_parallel import (
    Fabric,
    GroupedPlan,
    all_reduce,
    break_even_rtt,
    group_bound,
    grouped,
    plan_groups,
    shares_of,
)
from .two_time_scales import DesignCapacity, ExactWait, WaitingPenalised, design_capacity

# in the order in which one meets them
__all__ = [
    "Cluster",
    "Card",
    "CARDS",
    "Device",
    "A100",
    "MIG",
    "GB",
    "GIB",
    "Placement",
    "Chain",
    "Plan",
    "check",
    "cheapest",
    "route",
    "route_direct",
    "plan_direct",
    "direct_bound",
    "direct_floor",
    "route_exact",
    "coverage",
    "cg_bp",
    "cg_bprr",
    "guarantee",
    "largest_requests",
    "sweep",
    "lanes",
    "uncontended",
    "improve",
    "milp",
    "enumeration",
    "max_flow_placement",
    "lone_bound",
    "aggregate_bound",
    "chain_bound",
    "strip_bound",
    "exit_bound",
    "best_bound",
    "Bound",
    "robust",
    "RobustPlan",
    "place_robust",
    "surviving",
    "losses",
    "largest_robust",
    "rental",
    "Frontier",
    "petals_bp",
    "petals",
    "rebalance",
    "PetalsRouting",
    "PetalsThroughput",
    "launch_commands",
    "Launch",
    "read_launch",
    "simulate",
    "Arrivals",
    "Lengths",
    "Change",
    "Fastest",
    "WithRoom",
    "Run",
    "WaitingPenalised",
    "ExactWait",
    "design_capacity",
    "DesignCapacity",
    "repair",
    "RepairedPlan",
    "reloads",
    "allocate_caches",
    "ServerChains",
    "ChainQueue",
    "JoinFastestFree",
    "place_chains",
    "plan_chains",
    "Event",
    "churn_changes",
    "stay",
    "plan_anew",
    "compare_policies",
    "Comparison",
    "all_reduce",
    "Fabric",
    "shares_of",
    "grouped",
    "break_even_rtt",
    "group_bound",
    "plan_groups",
    "GroupedPlan",
    "Infeasible",
    "NotFound",
    "TooLarge",
    "NoPlacement",
    "NoRoute",
    "BadPlan",
    "BadFile",
]
