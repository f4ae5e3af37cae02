"Blocks of a model, across space: which server holds which blocks, and through which servers each request goes."
from .model import CARDS, GB, GIB, BadFile, BadPlan, Chain, Cluster, Infeasible, NoRoute, NotFound, Placement, Plan, TooLarge, check
from .routing import cheapest, lone_bound, route, route_direct
from .cg_bprr import NoPlacement, cg_bp, cg_bprr, guarantee, largest_requests
from .milp import milp
from .bounds import chain_bound
from .replicate import Frontier, RobustPlan, coverage, improve, lanes, largest_robust, losses, petals_like, place_robust, rental, robust, route_exact, surviving, sweep, uncontended
