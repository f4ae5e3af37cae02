"""Experts of a Mixture-of-Experts model, over time.

How many GPUs each one gets as the load drifts.
"""

from .certificate import Certificate, run
from .hindsight import optimum
from .model import Problem, Schedule
from .policies import Chase, Myopic, Never, Policy
from .predictions import Follow, Mix, Rounded
from .regularized_greedy import RegularizedGreedy
from .relaxation import Relaxation, relax
from .rounding import Credit, Hysteresis, Rounding, Threshold
from .static import place

__all__ = [
    "Problem",
    "Schedule",
    "place",
    "Relaxation",
    "relax",
    "Chase",
    "Myopic",
    "Never",
    "Policy",
    "RegularizedGreedy",
    "Certificate",
    "run",
    "Credit",
    "Hysteresis",
    "Rounding",
    "Threshold",
    "optimum",
    "Follow",
    "Mix",
    "Rounded",
]
