"Blocks of a model, across space: which server holds which blocks, and through which servers each request goes."
from .model import CARDS, GB, GIB, BadFile, BadPlan, Chain, Cluster, Infeasible, NoRoute, NotFound, Placement, Plan, TooLarge, check
from .routing import cheapest, lone_bound, route, route_direct
from .cg_bprr import NoPlacement, cg_bp, cg_bprr, guarantee, largest_requests
