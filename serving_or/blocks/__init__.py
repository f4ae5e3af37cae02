"""Blocks of a model on servers far apart.

Which server holds which blocks, and which chain of servers serves a request.
"""

from ..tools.answers import Infeasible, NotFound, TooLarge
from ..tools.files import GB, GIB, BadFile
from ..tools.models import CARDS
from .bounds import chain_bound
from .cluster import Cluster
from .conservative_greedy import NoPlacement, cg_bp, cg_bprr, guarantee, largest_requests
from .designs import lanes, petals_like, sweep, uncontended
from .failures import RobustPlan, largest_robust, losses, place_robust, robust, surviving
from .flow import coverage, route_exact
from .line_program import milp
from .plan import BadPlan, Chain, NoRoute, Placement, Plan, check
from .renting import Frontier, rental
from .routing import cheapest, lone_bound, route, route_direct
from .search import improve

__all__ = [
    "BadFile",
    "Cluster",
    "CARDS",
    "GB",
    "GIB",
    "BadPlan",
    "Chain",
    "Infeasible",
    "NoRoute",
    "NotFound",
    "Placement",
    "Plan",
    "TooLarge",
    "check",
    "cheapest",
    "lone_bound",
    "route",
    "route_direct",
    "coverage",
    "route_exact",
    "milp",
    "NoPlacement",
    "cg_bp",
    "cg_bprr",
    "guarantee",
    "largest_requests",
    "chain_bound",
    "lanes",
    "petals_like",
    "sweep",
    "uncontended",
    "improve",
    "RobustPlan",
    "largest_robust",
    "losses",
    "place_robust",
    "robust",
    "surviving",
    "Frontier",
    "rental",
]
