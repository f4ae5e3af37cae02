"""A PETALS client: ``client.py JOB.json ANSWER.json``.

The job says which model, which peers, and what to do: generate tokens, time steps along forced
chains, or open more sessions than the caches hold.
"""

import faulthandler
import json
import sys
import threading
import time

import shims

WARM_UP = 3  # steps of a session that are not counted
CLEANUP = 0.5  # seconds in which a server gives back the cache of a closed session


class Client:
    """The model of a swarm, seen by a client."""

    def __init__(self, job):
        import torch
        from petals import AutoDistributedModelForCausalLM

        self.torch, self.job = torch, job
        self.model = AutoDistributedModelForCausalLM.from_pretrained(
            job["model"],
            initial_peers=job["peers"],
            dht_prefix=job["prefix"],
            torch_dtype=torch.float32,
            max_retries=1,
        )
        self.blocks = self.model.transformer.h
        self.manager = self.blocks.sequence_manager
        self.route = self.manager.make_sequence
        self.known = {}
        self.hidden = torch.randn(1, 1, self.model.config.hidden_size)

    def find(self):
        """Wait until all servers of the job are announced."""
        until = time.monotonic() + self.job["patience"]
        while len(self.known) < self.job["servers"]:
            if time.monotonic() > until:
                raise SystemExit(
                    f"{len(self.known)} of {self.job['servers']} servers are announced"
                )
            # the first call starts the thread that looks for servers
            self.manager.rpc_info  # noqa: B018
            self.manager.update(wait=True)
            spans = self.manager.state.sequence_info.spans_by_priority
            self.known = {str(span.peer_id): span for span in spans}
            time.sleep(0.2)

    def force(self, chain):
        """Let sessions take a chain [[peer, start, end], ...]; None is PETALS' own choice."""
        if chain is None:
            self.manager.make_sequence = self.route
            return
        from petals.data_structures import RemoteSpanInfo

        spans = [(self.known[peer], start, end) for peer, start, end in chain]
        self.manager.make_sequence = lambda *args, **more: [
            RemoteSpanInfo(of.peer_id, start, end, of.server_info) for of, start, end in spans
        ]

    def session(self, length):
        """A session for so many tokens, through all blocks."""
        return self.blocks.inference_session(max_length=length)

    def steps(self, chain, count, direct):
        """Milliseconds of single-token steps of one session."""
        self.force(chain)
        self.manager.config.use_server_to_server = direct
        took = []
        with self.torch.inference_mode(), self.session(count + WARM_UP) as session:
            for _ in range(count + WARM_UP):
                began = time.perf_counter()
                session.step(self.hidden)
                took.append(1000 * (time.perf_counter() - began))
        return took[WARM_UP:]


def tokens(client, prompt, count, chains):
    """Greedy tokens of the model on this machine, and of the swarm along each chain."""
    from transformers import AutoModelForCausalLM

    ids = client.torch.tensor([prompt])
    local = AutoModelForCausalLM.from_pretrained(client.job["model"])
    with client.torch.inference_mode():
        made = local.generate(ids, max_new_tokens=count, do_sample=False, pad_token_id=0)
    answer = {"local": made[0].tolist(), "swarm": []}
    for chain in chains:
        client.force(chain)
        made = client.model.generate(ids, max_new_tokens=count, do_sample=False, pad_token_id=0)
        answer["swarm"].append(made[0].tolist())
    return answer


def own_route(client):
    """The chain that PETALS' client chooses: [[peer, start, end], ...]."""
    client.force(None)
    spans = client.manager.make_sequence(0, len(client.blocks), mode="min_latency")
    return [[str(span.peer_id), span.start, span.end] for span in spans]


def measure(client, chains, steps, rounds, direct=False):
    """Times of steps (chains, rounds * steps): all chains in turn, again and again."""
    times = [[] for _ in chains]
    for _ in range(rounds):
        for chain, own in zip(chains, times):
            own += client.steps(chain, steps, direct)
            time.sleep(0.05)
    return times


def full(client, chain, length, free_after):
    """What a third session meets where the caches hold two, and when one gets in that waits."""
    client.force(chain)
    answer = {}
    with (
        client.torch.inference_mode(),
        client.session(length) as first,
        client.session(length) as second,
    ):
        first.step(client.hidden)
        second.step(client.hidden)
        began = time.perf_counter()
        try:
            with client.session(length) as third:
                third.step(client.hidden)
            answer["refused"] = None
        except Exception as error:
            answer["refused"] = f"{type(error).__name__}: {error}"
        answer["refused_after"] = time.perf_counter() - began
        answer["banned"] = chain[0][0] in map(str, client.manager.state.banned_peers.ban_counter)
        # and one that tries again, while a cache becomes free
        client.manager.config.max_retries = None
        began = time.perf_counter()
        freed = threading.Timer(free_after, first.close)
        freed.start()
        with client.session(length) as fourth:
            fourth.step(client.hidden)
            answer["admitted_after"] = time.perf_counter() - began
        freed.join()
        second.close()
        client.manager.config.max_retries = 1
        time.sleep(CLEANUP)
        try:
            with client.session(client.job["longest"] + 1) as long:
                long.step(client.hidden)
            answer["too_long"] = None
        except Exception as error:
            answer["too_long"] = f"{type(error).__name__}: {error}"
    answer["free_after"] = free_after
    return answer


DEEDS = {"tokens": tokens, "own_route": own_route, "measure": measure, "full": full}


def main(job_file, answer_file):
    """Do the job, write the answer."""
    with open(job_file) as stream:
        job = json.load(stream)
    # whoever waits for ever says where
    faulthandler.dump_traceback_later(job["limit"], exit=True)
    shims.load()
    client = Client(job)
    client.find()
    answers = {name: DEEDS[name](client, **given) for name, given in job["deeds"].items()}
    with open(answer_file, "w") as stream:
        json.dump(answers, stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
