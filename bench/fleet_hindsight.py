"""The optimal schedule in hindsight: `hindsight` against the plain program in scipy's HiGHS.

The plain program is what one writes down: every start up to the end of the windows that the first
feasible schedule and the sum of the outputs allow, rows of memory, nothing else. Both get ten
seconds, in turn; ``proved`` is 1 where the optimum was proved, and gaps are those that were left.
"""

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from bench import race, row
from serving_or.fleet.kv_cache import MCSF, Requests, schedule, volume_bound
from serving_or.fleet.lookahead import hindsight

LIMIT, SEEDS = 10.0, 4


def workload(seed, n):
    "Random requests that come together or over ten rounds, and a memory into which each fits."
    rng = np.random.default_rng(seed)
    memory, prompt = int(rng.integers(10, 17)), rng.integers(1, 4, n)
    output = np.array([rng.integers(1, memory - s + 1) for s in prompt])
    return Requests(rng.integers(0, 10, n) * (seed % 2), prompt, output), memory


def plain(requests, memory):
    "Value and bound of the program as it is written down."
    begin = schedule(requests, memory, MCSF()).value
    wait = int(begin - requests.output.sum())
    who, when, held, rounds, column = [], [], [], [], []
    for i in range(len(requests)):
        for t in range(requests.arrival[i], requests.arrival[i] + wait + 1):
            k = np.arange(1, requests.output[i] + 1)
            rounds.append(t + k)
            held.append(requests.prompt[i] + k)
            column.append(np.full(len(k), len(who)))
            who.append(i)
            when.append(t)
    rounds, held, column = (np.concatenate(v) for v in (rounds, held, column))
    shape = (rounds.max() + 1, len(who))
    use = coo_array((held.astype(float), (rounds, column)), shape=shape).tocsc()
    one = coo_array((np.ones(len(who)), (who, range(len(who)))), shape=(len(requests), len(who)))
    who, when = np.array(who), np.array(when)
    cost = when + requests.output[who] - requests.arrival[who]
    rows = [LinearConstraint(one.tocsc(), 1, 1), LinearConstraint(use, -np.inf, memory)]
    found = milp(
        cost.astype(float),
        constraints=rows,
        bounds=Bounds(0, 1),
        integrality=np.ones(len(who)),
        options={"time_limit": LIMIT},
    )
    value = begin if found.fun is None else min(begin, found.fun)
    bound = found.mip_dual_bound if found.mip_dual_bound is not None else -np.inf
    return value, max(bound, volume_bound(requests, memory))


def gap_left(value, bound):
    "In percent; costs are whole numbers."
    return 100 * (value - min(np.ceil(bound - 1e-6), value)) / value


def run():
    for n in (6, 8, 10, 12):
        for seed in range(SEEDS):
            requests, memory = workload(seed, n)
            calls = {
                "hindsight": lambda: hindsight(requests, memory, LIMIT),
                "plain program": lambda: plain(requests, memory),
            }
            found = race(calls, 1, False, "wall")
            answer, (value, bound) = found.answers.values()
            # what one has proved, the other must not undercut
            assert answer.value >= bound - 1e-6 and value >= answer.bound - 1e-6
            values = {"gap %": gap_left(answer.value, answer.bound)}
            values["plain gap %"] = gap_left(value, bound)
            values |= {"proved": float(values["gap %"] < 1e-7)}
            values["plain proved"] = float(values["plain gap %"] < 1e-7)
            yield row(f"{n} requests, seed {seed}", found, **values)
