"""What the engines' own code does with the maps that we write, and with those that we refuse."""

import json
import os
import socket
import types

import numpy as np
import pytest

from serving_or import experts
from serving_or.experts import check_map, rebuild, write_map
from serving_or.experts.maps import VllmPolicy, engines_say
from serving_or.experts.repair import transfers
from tests.clients import engines

if not engines.ready():
    pytest.skip("skipped: no engines", allow_module_level=True)
torch = pytest.importorskip("torch", reason="skipped: no torch")

LAYERS, EXPERTS, GPUS, SPARES = 3, 16, 4, 8
SLOTS = EXPERTS + SPARES
SIZE = SLOTS // GPUS


def plan(seed=0):
    loads = np.random.default_rng(seed).zipf(1.5, (LAYERS, EXPERTS)).clip(max=1000)
    return rebuild(loads, GPUS, SPARES)


MAP = plan().physical


# a slot of layer 1 whose expert has others
SPARE = int(np.flatnonzero(np.bincount(MAP[1])[MAP[1]] > 1)[-1])


def another(value):
    "The map with another expert in that slot."
    wrong = np.array(MAP)
    wrong[1, SPARE] = value
    return wrong


def without(layer, expert):
    "The map in which an expert has lost all its slots to others, none of them twice on a card."
    wrong = np.array(MAP)
    for slot in np.flatnonzero(wrong[layer] == expert):
        card = wrong[layer, slot // SIZE * SIZE : slot // SIZE * SIZE + SIZE]
        wrong[layer, slot] = next(e for e in range(EXPERTS) if e != expert and e not in card)
    return wrong


def twice(layer):
    "The map in which a replicated expert stands twice on a card, and every expert somewhere."
    wrong = np.array(MAP)
    counts = np.bincount(wrong[layer], minlength=EXPERTS)
    for slot in range(SLOTS):
        card = slice(slot // SIZE * SIZE, slot // SIZE * SIZE + SIZE)
        other = next((e for e in wrong[layer, card] if e != wrong[layer, slot]), None)
        if counts[wrong[layer, slot]] > 1 and other is not None:
            wrong[layer, slot] = other
            return wrong
    raise AssertionError


# SGLang


def sglang(tmp_path, table, spares=SPARES, dispatch="static", more=None, ending=".json"):
    "What SGLang's loader says of a map, on each rank; None where all is well."
    file = tmp_path / f"map{ending}"
    file.write_text(json.dumps({"physical_to_logical_map": table} | (more or {})))
    read = engines.sglang(EXPERTS, spares, GPUS, LAYERS, dispatch)
    try:
        return [read(file, rank) for rank in range(GPUS)], None
    except Exception as error:
        return None, type(error).__name__


@pytest.mark.parametrize("dispatch", ["static", "dynamic", None])
def test_sglang_takes_what_we_write(tmp_path, dispatch):
    for seed in range(5):
        made = plan(seed)
        file = tmp_path / f"map{seed}.json"
        write_map(made, file, "sglang")
        read = engines.sglang(EXPERTS, SPARES, GPUS, LAYERS, dispatch)
        for rank in range(GPUS):
            there = read(file, rank)
            assert np.array_equal(there.physical_to_logical_map.numpy(), made.physical)
            where = there.logical_to_all_physical_map.numpy()
            for layer, expert in np.ndindex(LAYERS, EXPERTS):
                slots = where[layer, expert][where[layer, expert] >= 0]
                assert len(slots) and (made.physical[layer, slots] == expert).all()
            if dispatch == "static":
                chosen = there.logical_to_rank_dispatch_physical_map.numpy()
                names = np.take_along_axis(made.physical, chosen, axis=1)
                assert np.array_equal(names, np.tile(np.arange(EXPERTS), (LAYERS, 1)))


def test_sglang_counts_dense_layers(tmp_path):
    made = plan()
    write_map(made, tmp_path / "map.json", "sglang", dense=2)
    there = engines.sglang(EXPERTS, SPARES, GPUS, LAYERS + 2)(tmp_path / "map.json", 0)
    assert np.array_equal(there.physical_to_logical_map[2:].numpy(), made.physical)
    check_map(tmp_path / "map.json", EXPERTS, GPUS, LAYERS + 2, "sglang", redundant=SPARES)


def test_a_dump_is_a_start_for_sglang(tmp_path):
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"logical_count": np.ones((2, LAYERS, EXPERTS), int).tolist()}))
    there = engines.sglang(EXPERTS, SPARES, GPUS, LAYERS, None)(file, 0)
    made = there.physical_to_logical_map.numpy()
    assert made.shape == (LAYERS, SLOTS) and set(made[0]) == set(range(EXPERTS))
    # its rule puts copies of an expert together
    with pytest.raises(ValueError, match="a second copy on a GPU serves nothing"):
        check_map(made, EXPERTS, GPUS, LAYERS, redundant=SPARES)


# the rows of the table: the map, what else is said, and what SGLang does
ROWS = {
    "own plan": (MAP, {}, None, None),
    "expert missing": (without(1, 5), {}, "ZeroDivisionError", None),
    "id = m": (another(EXPERTS), {}, "IndexError", "IndexError"),
    "-1": (another(-1), {}, None, None),
    "twice on a GPU": (twice(1), {}, None, None),
    "one row too few": (MAP[:-1], {}, None, None),
    "flag left at 0": (MAP, {"spares": 0}, None, None),
    "another key": (MAP, {"more": {"note": "x"}}, "TypeError", "TypeError"),
    "float ids": (MAP + 0.0, {}, "TypeError", "TypeError"),
    "ending .JSON": (MAP, {"ending": ".JSON"}, "JSONDecodeError", "JSONDecodeError"),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_table_at_sglang(tmp_path, row):
    table, more, static, dynamic = ROWS[row]
    for dispatch, want in (("static", static), ("dynamic", dynamic)):
        there, error = sglang(tmp_path, np.asarray(table).tolist(), dispatch=dispatch, **more)
        assert error == want, (dispatch, error)
        if row == "expert missing" and dispatch == "dynamic":
            assert there[0].logical_to_all_physical_map_num_valid[1, 5] == 0
    if row == "-1":
        # a list's index -1 is its last element: expert 15 is said to be in that slot
        where = there[0].logical_to_all_physical_map[1, EXPERTS - 1].tolist()
        assert SPARE in where


@pytest.mark.parametrize("engine", [None, "sglang", "vllm", "tensorrt-llm", "vllm-ascend"])
@pytest.mark.parametrize("row", ROWS)
def test_the_same_row_with_us(tmp_path, row, engine):
    table, more, *_ = ROWS[row]
    file = tmp_path / "map.json"
    file.write_text(
        json.dumps({"physical_to_logical_map": np.asarray(table).tolist()} | more.get("more", {}))
    )
    sizes = (EXPERTS, GPUS, LAYERS, engine)
    spares = more.get("spares", SPARES)
    if row == "own plan":
        check_map(file, *sizes, redundant=spares)
    elif row == "ending .JSON":
        with pytest.raises(ValueError, match="JSON"):
            write_map(table, tmp_path / "map.JSON", "sglang", EXPERTS, GPUS)
    else:
        with pytest.raises(ValueError):
            check_map(file, *sizes, redundant=spares)


# vLLM-Ascend


def wrong_entries(file, table, layers=LAYERS):
    "Entries of logical-to-physical tables that point at another expert, over ranks and layers."
    wrong = 0
    for layer in range(layers):
        for rank in range(GPUS):
            _, _, where, spares = engines.ascend(file, EXPERTS, GPUS, layer, rank)
            assert spares == np.shape(table)[1] - EXPERTS
            wrong += int((np.asarray(table)[layer][where.numpy()] != np.arange(len(where))).sum())
            wrong += abs(len(where) - EXPERTS)
    return wrong


def test_ascend_takes_what_we_write(tmp_path):
    for seed in range(5):
        made = plan(seed)
        write_map(made, tmp_path / "map.json", "vllm-ascend")
        assert wrong_entries(tmp_path / "map.json", made.physical) == 0


def ascend_file(tmp_path, table):
    "A file for vLLM-Ascend that nobody has checked."
    layers = [
        {"device_list": [{"device_expert": card} for card in row.reshape(GPUS, -1).tolist()]}
        for row in np.asarray(table)
    ]
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps({"moe_layer_count": len(layers), "layer_list": layers}))
    return file


def test_the_rows_at_ascend(tmp_path):
    with pytest.raises(RuntimeError):
        wrong_entries(ascend_file(tmp_path, without(1, 5)), without(1, 5))
    # the last expert may be missing without a word: one entry fewer on every rank
    last = without(1, EXPERTS - 1)
    assert wrong_entries(ascend_file(tmp_path, last), last) == GPUS
    with pytest.raises(IndexError):
        wrong_entries(ascend_file(tmp_path, another(EXPERTS)), another(EXPERTS))
    assert wrong_entries(ascend_file(tmp_path, twice(1)), twice(1)) > 0
    file = ascend_file(tmp_path, MAP[:-1])
    # the row after the last is one of its own making; the next one is an error
    engines.ascend(file, EXPERTS, GPUS, LAYERS - 1)
    with pytest.raises(ValueError, match="Invalid EPLB Table"):
        engines.ascend(file, EXPERTS, GPUS, LAYERS)
    for table in (without(1, 5), last, another(EXPERTS), twice(1), MAP[:-1]):
        with pytest.raises(ValueError):
            check_map(ascend_file(tmp_path, table), EXPERTS, GPUS, LAYERS, "vllm-ascend")


def put_back(old, new):
    "Layers that vLLM-Ascend's worker puts back, and what it says."
    worker = engines.ascend_worker()
    logs = engines.load("vllm.logger")
    logs.errors.clear()
    before, after = (torch.tensor(np.asarray(t).reshape(LAYERS, GPUS, -1)) for t in (old, new))
    tried = after.clone()
    worker.check_expert_placement(before, after)
    changed = (tried != after).any(dim=2).any(dim=1)
    return changed.nonzero().ravel().tolist(), list(logs.errors)


def test_no_layer_of_a_repair_is_put_back():
    "And vLLM-Ascend sends as many experts as we count."
    old = np.array(MAP)
    for seed in range(1, 6):
        loads = np.random.default_rng(seed).zipf(1.5, (LAYERS, EXPERTS)).clip(max=1000)
        new = experts.plan(loads, GPUS, SPARES, old=old).physical
        assert put_back(old, new) == ([], [])
        check_map(new, EXPERTS, GPUS, engine="vllm-ascend", old=old, redundant=SPARES)
        worker = engines.ascend_worker()
        maps = [
            worker.local2global(torch.tensor(np.asarray(t).reshape(LAYERS, GPUS, -1)))
            for t in (new, old)
        ]
        sent = [
            sum(map(len, receives.values()))
            for _, receives, _, _ in worker.compose_expert_update_info_greedy(*maps)
        ]
        assert sent == transfers(old, new, GPUS).tolist()
        old = np.array(new)


@pytest.mark.parametrize("start", [[0, 1, 2, 3, 0, 1], [0, 1, 2, 3, 4, 0]])
def test_the_live_example_says_what_the_engines_do(tmp_path, start):
    "All states of the example in the chapter, and of its exercise: a slot gets another expert."
    m = max(start) + 1
    for slot, expert in np.ndindex(6, m + 2):
        row = list(start)
        row[slot] = expert - 1
        assert engines_say(row, m) == {
            "SGLang, static": said(lambda: sglang_of([row], m, tmp_path, "static")),
            "SGLang, dynamic": said(lambda: sglang_of([row], m, tmp_path, "dynamic")),
            "vLLM": said(lambda: vllm_takes([row], m, [start])),
            "vLLM-Ascend": said(lambda: ascend_of([row], m, tmp_path)),
        }, row


def said(call):
    "The name of a call's error."
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return ""


def sglang_of(table, m, tmp_path, dispatch):
    file = tmp_path / "small.json"
    file.write_text(json.dumps({"physical_to_logical_map": table}))
    for rank in range(3):
        engines.sglang(m, 6 - m, 3, 1, dispatch)(file, rank)


def ascend_of(table, m, tmp_path):
    cards = [{"device_expert": table[0][2 * g : 2 * g + 2]} for g in range(3)]
    file = tmp_path / "small.json"
    layers = [{"device_list": cards}]
    file.write_text(json.dumps({"moe_layer_count": 1, "layer_list": layers}))
    for rank in range(3):
        engines.ascend(file, m, 3, 0, rank)


def test_slots_in_another_order_are_put_back():
    swapped = np.array(MAP)
    swapped[2, [0, 1]] = swapped[2, [1, 0]]
    layers, said = put_back(MAP, swapped)
    assert layers == [2] and "movement inside NPU" in said[0]
    assert put_back(MAP, MAP) == ([], [])
    with pytest.raises(ValueError, match="layer 2, GPU 0: expert"):
        check_map(swapped, EXPERTS, GPUS, engine="vllm-ascend", old=MAP)


def test_minus_one_at_ascend(tmp_path):
    "Index -1 is the last expert: on two ranks its entry points at the slot that holds nothing."
    wrong = another(-1)
    assert wrong_entries(ascend_file(tmp_path, wrong), wrong) == 2


# vLLM takes a map over from its policy


def vllm_takes(table, experts=EXPERTS, before=MAP):
    "vLLM's maps after it has taken a new one over."
    state = engines.load("vllm.distributed.eplb.eplb_state")
    held = types.SimpleNamespace(
        physical_to_logical_map=torch.tensor(before),
        physical_to_logical_map_buffer=torch.tensor(before),
        logical_to_physical_map=torch.full((len(before), experts, SLOTS), -1),
        logical_replica_count=torch.zeros((len(before), experts), dtype=torch.int64),
    )
    state._commit_eplb_maps(held, torch.tensor(np.asarray(table)))
    return held


def test_vllm_takes_what_we_plan():
    held = vllm_takes(plan(3).physical)
    where, count = held.logical_to_physical_map.numpy(), held.logical_replica_count.numpy()
    made = held.physical_to_logical_map.numpy()
    assert np.array_equal(made, plan(3).physical) and count.min() >= 1
    for layer, expert in np.ndindex(LAYERS, EXPERTS):
        slots = where[layer, expert][where[layer, expert] >= 0]
        assert len(slots) == count[layer, expert] and (made[layer, slots] == expert).all()


def test_the_policy_stands_in_for_vllms():
    policies = engines.load("vllm.distributed.eplb.policy").EPLB_POLICIES
    state = engines.load("vllm.distributed.eplb.eplb_state")
    before = policies["default"]
    policies["default"] = VllmPolicy
    try:
        policy = state.EPLB_POLICIES["default"]
        loads = torch.rand(LAYERS, EXPERTS)
        new = policy.rebalance_experts(loads, SLOTS, 1, 1, GPUS, torch.tensor(MAP))
    finally:
        policies["default"] = before
    theirs = before.rebalance_experts(loads, SLOTS, 1, 1, GPUS, torch.tensor(MAP))
    assert new.dtype == theirs.dtype and new.shape == theirs.shape
    check_map(vllm_takes(new).physical_to_logical_map, EXPERTS, GPUS, LAYERS, "vllm")
    three = experts.rebalance_experts(loads, SLOTS, 1, 1, GPUS)
    sglangs = engines.load("sglang.srt.eplb.eplb_algorithms.deepseek")
    those = sglangs.rebalance_experts(loads, SLOTS, 1, 1, GPUS, False)
    for ours, other in zip(three, those):
        assert isinstance(ours, torch.Tensor) and ours.dim() == other.dim()
    assert three[0].shape == those[0].shape and three[2].shape == those[2].shape


def test_the_rows_at_vllm():
    assert vllm_takes(without(1, 5)).logical_replica_count[1, 5] == 0
    assert vllm_takes(without(1, EXPERTS - 1)).logical_replica_count[1, -1] == 0
    assert vllm_takes(another(-1)).logical_replica_count[1].sum() == SLOTS - 1
    vllm_takes(twice(1))
    for wrong in (another(EXPERTS), MAP[:-1], MAP + 0.0):
        with pytest.raises(RuntimeError):
            vllm_takes(wrong)


# vLLM's mover of weights, four processes


def mover(rank, port, old, new, batched, out):
    "What a rank holds after vLLM has moved the weights: the number of an expert in each slot."
    assert engines.ready()
    # there is no stream to wait for on a processor
    still = types.SimpleNamespace(synchronize=lambda: None)
    torch.accelerator.current_stream = lambda: still
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=GPUS)
    group = torch.distributed.group.WORLD
    move = engines.load("vllm.distributed.eplb.rebalance_execute")
    talk = engines.load("vllm.distributed.eplb.eplb_communicator")
    held = np.asarray(old)[:, rank * SIZE : (rank + 1) * SIZE]
    weights = [[torch.tensor(row + 0.0)[:, None].repeat(1, 5)] for row in held]
    talks = talk.TorchDistGlooStagedEplbCommunicator(group)
    for layer, own in enumerate(weights):
        room = [torch.full_like(w, -7.0) for w in own]
        done = move.transfer_layer(
            torch.tensor(old[layer]),
            torch.tensor(new[layer]),
            own,
            room,
            group,
            talks,
            enable_migration_batching=batched,
        )
        move.move_from_buffer(own, room, done, np.asarray(new[layer]), rank)
    out.put((rank, [w[0][:, 0].tolist() for w in weights]))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def moved(old, new, batched=False):
    "Slots that hold another expert's weights than the new map says, over ranks and layers."
    context = torch.multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = context.Queue()
    ranks = [
        context.Process(target=mover, args=(rank, port, old, new, batched, out), daemon=True)
        for rank in range(GPUS)
    ]
    for process in ranks:
        process.start()
    try:
        found = dict(out.get(timeout=60) for _ in ranks)
    finally:
        for process in ranks:
            process.join(10)
            process.kill()
    held = np.concatenate([np.array(found[rank]) for rank in range(GPUS)], axis=1)
    return int((held != np.asarray(new)).sum())


@pytest.mark.parametrize("batched", [False, True])
def test_vllm_moves_the_weights_that_we_plan(batched):
    old, new = np.array(plan(0).physical), np.array(plan(1).physical)
    assert (old != new).any()
    assert moved(old, new, batched) == 0


def test_vllm_serves_stale_weights_after_a_map_that_drops_an_expert():
    gone = without(1, 5)
    assert moved(gone, np.array(MAP)) == (MAP[1] == 5).sum()
    with pytest.raises(ValueError, match="layer 1: no slot holds expert 5"):
        check_map(gone, EXPERTS, GPUS, engine="vllm")
