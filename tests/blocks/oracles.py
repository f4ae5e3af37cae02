"""Clusters of up to three servers solved by trying everything, in plain Python: no code is shared
with the package, and its rules are those of the chapter *Plans*, block by block.
"""

from itertools import product

import numpy as np

INF = float("inf")


class Oracle:
    "All placements of a small cluster, and for each all chains; relayed plans."

    def __init__(self, cluster):
        self.L, self.n = cluster.blocks, len(cluster.memory)
        self.size, self.cache = (
            np.broadcast_to(s, self.L).tolist() for s in (cluster.block_size, cluster.cache_size)
        )
        self.memory, self.tau = cluster.memory.tolist(), cluster.tau.tolist()
        self.rtt = cluster.rtt.tolist()
        self.placements = list(product(*map(self._held, self.memory)))

    def _held(self, memory):
        "Spans (first, behind the last) of a server, counted from 0; (0, 0) is none."
        L = self.L
        spans = [(0, 0), *((a, e) for a in range(L) for e in range(a + 1, L + 1))]
        return [(a, e) for a, e in spans if sum(self.size[a:e]) <= memory]

    def left(self, spans):
        "Memory beside the parameters."
        return [M - sum(self.size[a:e]) for M, (a, e) in zip(self.memory, spans)]

    def ways(self, spans, client):
        "Cost and caches of each chain of a client: whoever enters a server stays to its end."
        found, open_ = [], [(0, 0.0, {})]
        while open_:
            x, cost, used = open_.pop()
            if x == self.L:
                found.append((cost, used))
                continue
            for j, (a, e) in enumerate(spans):
                if a <= x < e and self.rtt[client][j] < INF:
                    more = self.rtt[client][j] + self.tau[j] * (e - x)
                    open_.append((e, cost + more, {**used, j: sum(self.cache[x:e])}))
        return sorted(found, key=lambda way: way[0])

    def routed(self, spans, demand, cutoff=INF):
        "The least total cost of serving all, if it is below the cutoff; otherwise infinity."
        ways = [self.ways(spans, c) if d else [] for c, d in enumerate(demand)]
        who = [c for c, d in enumerate(demand) for _ in range(d)]
        if any(not ways[c] for c in who):
            return INF
        least = [ways[c][0][0] for c in who]
        best, left = cutoff, self.left(spans)

        def serve(i, first, total):
            nonlocal best
            if total + sum(least[i:]) >= best:
                return
            if i == len(who):
                best = total
                return
            # requests of one client take their ways in order
            same = i > 0 and who[i] == who[i - 1]
            for w in range(first if same else 0, len(ways[who[i]])):
                cost, used = ways[who[i]][w]
                if all(u <= left[j] for j, u in used.items()):
                    for j, u in used.items():
                        left[j] -= u
                    serve(i + 1, w, total + cost)
                    for j, u in used.items():
                        left[j] += u

        serve(0, 0, 0.0)
        return best if best < cutoff else INF

    def optimum(self, demand):
        "The least mean cost of all plans; infinite where there is none."
        best = INF
        for spans in self.placements:
            if all(any(a <= b < e for a, e in spans) for b in range(self.L)):
                best = min(best, self.routed(spans, demand, best))
        return best / sum(demand) if sum(demand) else 0.0

    def serves(self, demand):
        "Whether some plan serves all."
        return sum(demand) == 0 or any(self.routed(p, demand) < INF for p in self.placements)

    def most(self, demand):
        "The most of the requests that some plan serves."
        vectors = sorted(product(*(range(d + 1) for d in demand)), key=sum, reverse=True)
        return next(sum(v) for v in vectors if self.serves(v))


def spans_of(placement):
    "A placement as the oracle counts."
    return [(int(a) - 1, int(a + m) - 1) if m else (0, 0) for a, m in zip(placement.a, placement.m)]


def any_cluster(rng, Cluster):
    "Partial reach, several clients, ties, zero memory, zero caches, blocks alike or not."
    n, L, C = int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    L = min(L, 3) if n == 3 else L
    sizes = [rng.integers(1, 7, L), rng.integers(0, 4, L)]
    block, cache = (s if rng.random() < 0.25 else int(s[0]) for s in sizes)
    memory = rng.integers(0, 25, n) * (rng.random(n) < 0.95)
    tau = rng.choice(rng.integers(0, 6, 2), n) if rng.random() < 0.5 else rng.integers(0, 9, n)
    rtt = rng.integers(0, 12, (C, n)).astype(float)
    if rng.random() < 0.3:
        rtt[:, 1:] = rtt[:, :1]
    rtt[rng.random((C, n)) < rng.choice([0.0, 0.3])] = np.inf
    demand = rng.integers(0, {1: 5, 2: 4, 3: 3}[C], C)
    return Cluster(L, block, cache, memory, tau, rtt), demand
