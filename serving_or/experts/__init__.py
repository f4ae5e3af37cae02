"""Experts of a Mixture-of-Experts model, over time: how many GPUs each one gets as the load drifts."""
from .model import Problem, Schedule
from .static import place
from .relaxation import Relaxation, relax
from .online import Certificate, Chase, Myopic, Never, Policy, RegularizedGreedy, run
from .hindsight import optimum
from .rounding import Credit, Hysteresis, Rounding, Threshold
from .predictions import Follow, Mix, Rounded
