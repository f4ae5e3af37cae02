"""Nodes for copies against other solvers, what the class refuses, and the convex model."""

import networkx as nx
import numpy as np
import pytest

from serving_or.experts import ReplicaPlan, place_on_nodes, rebuild
from serving_or.experts.communication import NodePlacement, crossing, node_bound, routed
from serving_or.experts.communication import _steps as steps
from serving_or.experts.replicas import faults, gpu_loads, pack
from serving_or.tools.programs import Builder, solve
from tests.long import cases


def case(seed, largest=30):
    "A plan and whole sources; some experts without tokens, some sources alike."
    rng = np.random.default_rng(seed)
    nodes, gpus = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    m = int(rng.integers(1, largest))
    least = -(-m // (nodes * gpus))
    size = int(rng.integers(least, least + 3))
    spare = min(nodes * gpus * size - m, m * (nodes * gpus - 1) // (nodes * gpus) * nodes * gpus)
    spare -= (m + spare) % (nodes * gpus)
    if spare < 0:
        return case(seed + 10**6, largest)
    layers = int(rng.integers(1, 4))
    sources = rng.integers(0, 40, (layers, m, nodes)) * rng.integers(0, 2, (layers, m, 1))
    if seed % 5 == 0:
        sources[..., :] = sources[..., :1]
    plan = rebuild(sources.sum(axis=2), nodes * gpus, spare)
    old = rng.integers(-1, m, plan.physical.shape) if seed % 2 else None
    return plan, sources, old, float(rng.integers(0, 12)) if seed % 3 else 0.0


def arcs(placed, layer):
    "Costs of next copies (m, H, copies) and slots of a node."
    counts, nodes = placed.on_node.sum(axis=2), placed.sources.shape[2]
    made = steps(placed.sources, counts, placed.gpus // nodes, placed.old, placed.move_price)
    return made[layer], counts[layer], placed.physical.shape[1] // nodes


def by_network_simplex(placed, layer):
    "The least cost of a layer as networkx finds it; costs times all counts are whole."
    step, counts, slots = arcs(placed, layer)
    scale = float(np.lcm.reduce(counts))
    g, (m, nodes) = nx.DiGraph(), step.shape[:2]
    for i in range(m):
        g.add_node(("expert", i), demand=-int(counts[i]))
        for h in range(nodes):
            for u in np.flatnonzero(np.isfinite(step[i, h])):
                way = ("copy", i, h, int(u))
                g.add_edge(("expert", i), way, capacity=1, weight=round(step[i, h, u] * scale))
                g.add_edge(way, ("node", h), capacity=1)
    for h in range(nodes):
        g.add_edge(("node", h), "all", capacity=slots)
    g.add_node("all", demand=int(counts.sum()))
    return nx.min_cost_flow_cost(g) / scale + placed.sources[layer].sum()


@pytest.mark.parametrize("seed", range(cases(400)))
def test_no_solver_finds_less(seed):
    plan, sources, old, price = case(seed)
    placed = place_on_nodes(plan, sources, old, price)
    assert placed.status == "optimal" and placed.gap < 1e-9
    assert (placed.on_node.sum(axis=2) == plan.counts).all()
    assert not faults(placed.physical, sources.shape[1], plan.gpus)
    least = sum(by_network_simplex(placed, layer) for layer in range(len(sources)))
    assert np.isclose(placed.value, least, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(cases(80)))
def test_the_linear_program_is_as_good_and_any_prices_prove(seed):
    plan, sources, old, price = case(seed, largest=10)
    placed = place_on_nodes(plan, sources, old, price)
    rng, total = np.random.default_rng(seed), 0.0
    for layer in range(len(sources)):
        step, counts, slots = arcs(placed, layer)
        b, real = Builder(), np.isfinite(step)
        x = b.columns("x", step.shape, upper=real * 1.0, cost=np.where(real, step, 0.0))
        m, nodes, _ = step.shape
        b.rows(m, (1.0, x.reshape(m, -1)), low=counts, high=counts)
        b.rows(nodes, (1.0, x.transpose(1, 0, 2).reshape(nodes, -1)), high=slots)
        total += solve(b.build()).value + sources[layer].sum()
        r, c = sources[layer][None].astype(float), counts[None]
        for prices in rng.exponential(5, (5, 1, nodes)):
            cost = crossing(r, placed.on_node[layer][None])[0]
            cost += price * placed.moved[layer]
            assert node_bound(step[None], r, c, slots, prices)[0] <= cost + 1e-9 * (1 + cost)
    assert np.isclose(total, placed.value, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("seed", range(cases(80)))
def test_a_slot_more_saves_its_price(seed):
    "Where a node has one slot more, the optimum falls by what the multiplier says."
    from serving_or.experts.communication import _flow as flow

    plan, sources, old, price = case(seed, largest=20)
    placed = place_on_nodes(plan, sources, old, price)
    step, counts, slots = arcs(placed, 0)

    def best(room):
        b, real = Builder(), np.isfinite(step)
        x = b.columns("x", step.shape, upper=real * 1.0, cost=np.where(real, step, 0.0))
        m, nodes, _ = step.shape
        b.rows(m, (1.0, x.reshape(m, -1)), low=counts, high=counts)
        b.rows(nodes, (1.0, x.transpose(1, 0, 2).reshape(nodes, -1)), high=room)
        return solve(b.build()).value

    room = np.full(step.shape[1], slots)
    prices, first = flow(step, counts, slots)[1], best(room)
    for h, more in enumerate(np.eye(len(room), dtype=int)):
        assert np.isclose(first - best(room + more), prices[h], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(cases(200)))
def test_crossing_is_the_best_dispatch(seed):
    rng = np.random.default_rng(seed)
    r, n = rng.integers(0, 20, (1, 1, 3)), rng.integers(0, 3, (1, 1, 3))
    n[0, 0, 0] += 1
    # whole numbers
    r, taken = r * n.sum(), (r.sum() * n)[0, 0]
    b = Builder()
    y = b.columns("y", (3, 3), upper=np.inf, cost=1.0 - np.eye(3))
    b.rows(3, (1.0, y), low=r[0, 0], high=r[0, 0])
    b.rows(3, (1.0, y.T), low=taken, high=taken)
    assert np.isclose(solve(b.build()).value, crossing(r, n)[0], atol=1e-7)


@pytest.mark.parametrize("seed", range(cases(80)))
def test_routed_is_the_quadratic_programs(seed):
    import cvxpy as cp

    rng = np.random.default_rng(seed)
    r, n = rng.exponential(3, (2, 3)), rng.exponential(2, (2, 3)) + 0.1
    beta, y = float(rng.choice([0.0, 0.3, 2.0, 50.0])), cp.Variable((2, 3), nonneg=True)
    cost = cp.sum(cp.multiply(1 / n, cp.square(y))) + beta * cp.sum(cp.pos(r - y))
    want = cp.Problem(cp.Minimize(cost), [cp.sum(y, axis=1) == r.sum(axis=1)]).solve()
    inflow, found = routed(r, n, beta)
    assert np.isclose(found, want, rtol=1e-6)
    assert np.allclose(inflow.sum(axis=1), r.sum(axis=1)) and (inflow >= 0).all()


@pytest.mark.parametrize("seed", range(cases(400)))
def test_routed_meets_its_conditions_at_any_scale(seed):
    "What the last token of a node saves is at most what it costs elsewhere."
    g = np.random.default_rng(seed)
    r = g.exponential(3, (4, 3)) * (g.random((4, 3)) < 0.8) * 10.0 ** g.uniform(-8, 8)
    n, price = 10.0 ** g.uniform(-6, 6, (4, 3)), 10.0 ** g.uniform(-12, 12)
    y, _ = routed(r, n, price)
    assert (y >= 0).all() and np.allclose(y.sum(axis=1), r.sum(axis=1), rtol=1e-9)
    wait, home = 2 * y / n, 1e-9 * r
    saves = np.where(y > home, wait - price * (y <= r + home), -np.inf).max(axis=1)
    costs = (wait - price * (y < r - home)).min(axis=1)
    assert (saves <= costs + 1e-6 * (2 * r / n).max(axis=1) + 1e-300).all()


@pytest.mark.parametrize("price", [2, 4, 1e3, 1e17, 1e300])
def test_dear_crossings_keep_all_tokens_at_home(price):
    inflow, cost = routed([[3, 1], [0, 0], [5, 2]], [[1, 1], [1, 2], [3, 1]], price * 2.0)
    assert inflow.tolist() == [[3, 1], [0, 0], [5, 2]]
    assert cost == pytest.approx(9 + 1 + 25 / 3 + 4)
    # at a price just below the difference of the waits, 4, some go
    assert routed([[3, 1]], [[1, 1]], 4.0)[0].tolist() == [[3, 1]]
    assert routed([[3, 1]], [[1, 1]], 3.9)[0] == pytest.approx(np.array([[2.975, 1.025]]))


@pytest.mark.parametrize("seed", range(cases(40, 6)))
def test_the_policy_stays_within_its_guarantee(seed):
    "The entropy step on the convex model with budgets of nodes, beside the relaxed optimum."
    import cvxpy as cp

    rng = np.random.default_rng(seed)
    slack = 2e-3  # of the conic solver, in tokens
    steps_, delta, w, eta = 6, float(rng.uniform(0.2, 1)), float(rng.exponential(1)), 1.0
    price, room = float(rng.exponential(1)), rng.uniform(0.5, 4, 2)
    loads = rng.exponential(2, (steps_, 2, 2)) * rng.integers(0, 2, (steps_, 2, 1))

    def latency(x, r):
        y = cp.Variable((2, 2), nonneg=True)
        wait = sum(cp.quad_over_lin(y[i, h], delta + x[i, h]) for i in (0, 1) for h in (0, 1))
        fixed = [cp.sum(y, axis=1) == r.sum(axis=1), cp.sum(x, axis=0) <= room]
        return wait + price * cp.sum(cp.pos(r - y)), fixed

    at, total, paid = np.zeros((2, 2)), 0.0, 0.0
    for r in loads:
        x = cp.Variable((2, 2), nonneg=True)
        f, fixed = latency(x, r)
        cp.Problem(
            cp.Minimize(f + w / eta * cp.sum(cp.kl_div(delta + x, delta + at))), fixed
        ).solve()
        new = np.maximum(x.value, 0.0)
        here, moved = routed(r, delta + new, price)[1], w * np.maximum(new - at, 0).sum()
        assert moved <= eta * here + slack
        at, total, paid = new, total + here, paid + moved
    xs = [cp.Variable((2, 2), nonneg=True) for _ in loads]
    parts = [latency(x, r) for x, r in zip(xs, loads)]
    before = [np.zeros((2, 2)), *xs[:-1]]
    moves = sum(w * cp.sum(cp.pos(x - b)) for x, b in zip(xs, before))
    best = cp.Problem(
        cp.Minimize(sum(f for f, _ in parts) + moves), [c for _, fixed in parts for c in fixed]
    ).solve()
    swing = np.log(1 + room.max() / delta)
    limit = max(1, np.sqrt(swing / eta)) * best
    assert total <= limit + slack and total + paid <= (1 + eta) * limit + slack


def test_nothing_is_moved_where_moves_are_dear():
    plan, sources, *_ = case(3)
    again = place_on_nodes(plan, sources, plan.physical, move_price=1e6)
    assert not again.moved.any()
    assert again.traffic.sum() >= place_on_nodes(plan, sources).traffic.sum() - 1e-9


def test_tiny_and_huge_tokens_give_the_same_nodes():
    plan, sources, *_ = case(4)
    for unit in (1e-200, 1e-9, 1e9, 1e200):
        placed = place_on_nodes(plan, sources * unit)
        assert placed.status == "optimal"
        assert np.isclose(placed.value, place_on_nodes(plan, sources).value * unit, rtol=1e-9)


def test_copies_of_a_node_are_swapped_between_its_gpus():
    "As in the other packings: never worse than the first packing, and better on some layers."
    better = 0
    for seed in range(30):
        plan, sources, old, price = case(seed)
        placed = place_on_nodes(plan, sources, old, price)
        on, (layers, m, nodes) = placed.on_node, sources.shape
        counts = on.transpose(0, 2, 1).reshape(-1, m)
        loads = counts * np.repeat(sources.sum(axis=2) / plan.counts, nodes, axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            first = pack(loads, counts, plan.gpus // nodes).reshape(layers, -1)
        most = [
            gpu_loads(physical, sources.sum(axis=2), plan.gpus).max(axis=1)
            for physical in (placed.physical, first)
        ]
        assert (most[0] <= most[1] * (1 + 1e-12)).all()
        better += (most[0] < most[1] * (1 - 1e-9)).sum()
    assert better > 5


PLAN = rebuild([[6, 5, 4, 3]], gpus=4, redundant=4)
SOURCES = np.array([[[6, 0], [0, 5], [3, 1], [1, 2]]])


@pytest.mark.parametrize(
    "sources, more, said",
    [
        (np.ones((1, 4, 3)), {}, "4 GPUs cannot be split evenly over"),
        (np.ones((1, 4, 0)), {}, "0 nodes"),
        (np.ones((1, 5, 2)), {}, "1 layers of 5 experts; the plan has 1 of 4"),
        (np.ones((4, 2)), {}, "sources"),
        (-SOURCES, {}, r"sources\[0, 0, 0\] is -6"),
        (SOURCES + np.nan, {}, "sources"),
        (SOURCES, {"move_price": -1}, "move_price"),
        (SOURCES, {"old": [[0, 1, 2]]}, "a multiple of 4 slots"),
        (SOURCES, {"old": [[0, 1, 2, 4]]}, "names below 4"),
        (SOURCES, {"old": [[0, 1, 2, -2]]}, "old"),
    ],
)
def test_bad_input(sources, more, said):
    with pytest.raises(ValueError, match=said):
        place_on_nodes(PLAN, sources, **more)


def test_what_is_claimed_must_be_true():
    placed = place_on_nodes(PLAN, SOURCES)
    other = placed.physical[:, ::-1]
    given = (SOURCES, 4, placed.multipliers)
    if NodePlacement(other, *given).value > placed.value:
        with pytest.raises(ValueError):
            NodePlacement(other, *given, status="optimal")
    with pytest.raises(ValueError, match="not legal"):
        NodePlacement([[0, 0, 1, 2, 3, 0, 1, 2]], *given)
    with pytest.raises(ValueError, match="multipliers"):
        NodePlacement(placed.physical, SOURCES, 4, [[-1, 0]])
    assert isinstance(PLAN, ReplicaPlan) and "cross between 2 nodes" in placed.summary()


def test_it_travels(tmp_path):
    placed = place_on_nodes(PLAN, SOURCES, PLAN.physical, 1.0)
    placed.save(tmp_path / "placed.json")
    assert NodePlacement.load(tmp_path / "placed.json") == placed
    assert placed.share == placed.traffic.sum() / SOURCES.sum()
    assert placed.to_frame().loc[0].tolist()[:2] == [placed.traffic[0], placed.moved[0]]
    assert len(placed.to_frame()) == 1 and "svg" in str(placed.plot())
