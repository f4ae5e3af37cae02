"""Files of the engines: round trips, the table of wrong maps, recordings, and broken files."""

import base64
import io
import json
import struct
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.experts import maps
from serving_or.experts.maps import (
    ENGINES,
    ExpertMap,
    RecordedLoads,
    VllmPolicy,
    check_map,
    read_loads,
    read_map,
    rebalance_experts,
    write_map,
)
from tests.long import cases

RNG = np.random.default_rng
PLAN = np.array([[0, 1, 2, 3, 0, 1], [3, 2, 1, 0, 3, 2]])
# an expert missing; out of range; -1; twice on a GPU (one GPU has slots 2 p and 2 p + 1)
MISSING = [[0, 1, 2, 0, 1, 2], [3, 2, 1, 0, 3, 2]]
ABOVE = [[0, 1, 2, 3, 0, 4], [3, 2, 1, 0, 3, 2]]
BELOW = [[0, 1, 2, 3, 0, -1], [3, 2, 1, 0, 3, 2]]
TWICE = [[0, 1, 2, 3, 0, 0], [3, 2, 1, 0, 3, 2]]


@st.composite
def legal(draw):
    "A legal map: experts of each layer dealt to cards in turn, cards renamed."
    gpus, slots = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    n = gpus * slots
    m = draw(st.integers(-(-n // gpus), n))
    rng = RNG(draw(st.integers(0, 2**32)))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        spare = np.bincount(rng.integers(0, m, 0 if m == n else n - m), minlength=m)
        count = 1 + spare
        while count.max() > gpus:
            count[count.argmax()] -= 1
            count[count.argmin()] += 1
        dealt = np.repeat(rng.permutation(m), 1)
        dealt = np.repeat(dealt, count[dealt])
        rows.append(dealt.reshape(slots, gpus).T[rng.permutation(gpus)].ravel())
    return np.array(rows), m, gpus


# Round trips


def ending(engine):
    return ENGINES[engine].endings[0]


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=cases(1000, 30))
@given(case=legal(), dense=st.integers(0, 3))
def test_what_is_written_is_read_back(tmp_path_factory, engine, case, dense):
    physical, m, gpus = case
    file = tmp_path_factory.mktemp("maps") / f"map{ending(engine)}"
    write_map(physical, file, engine, experts=m, gpus=gpus, dense=dense)
    read = read_map(file)
    rows = read.physical[dense:] if engine == "sglang" else read.physical
    assert np.array_equal(rows, physical) and rows.dtype == np.int64
    if engine == "tensorrt-llm":
        assert read.layers == tuple(range(dense, dense + len(physical)))
    if engine == "vllm-ascend":
        assert read.gpus == gpus
    legal_rows = check_map(file, m, gpus, engine=engine, redundant=physical.shape[1] - m)
    assert np.array_equal(legal_rows.physical, read.physical)


@settings(max_examples=cases(500, 20))
@given(case=legal(), place=st.integers(0, 10**9), other=st.integers(-2, 30))
def test_a_map_with_one_other_slot_is_refused_or_legal(case, place, other):
    physical, m, gpus = case
    changed = physical.copy()
    layer, slot = place % len(changed), place % changed.shape[1]
    changed[layer, slot] = other
    size = changed.shape[1] // gpus
    cards = changed[layer].reshape(gpus, size)
    fine = set(changed[layer]) == set(range(m)) and all(len(set(c)) == size for c in cards)
    if fine:
        check_map(changed, m, gpus)
    else:
        with pytest.raises(ValueError, match=f"layer {layer}"):
            check_map(changed, m, gpus)


# The table of maps, row by row; tests/clients shows what the engines do with the same rows


@pytest.mark.parametrize("engine", [None, *ENGINES])
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (MISSING, "layer 0: no slot holds expert 3"),
        (ABOVE, "layer 0, GPU 2, slot 5: 4 is no expert"),
        (BELOW, "layer 0, GPU 2, slot 5: -1 is no expert"),
        (TWICE, "layer 0, GPU 2: expert 0 stands in slots 4 and 5"),
        (PLAN[:1].tolist(), "1 row for 2 layers"),
        ([[0.0, 1, 2, 3, 0, 1]] * 2, "whole numbers"),
        ([[0, 1, 2, 3, 0], [3, 2, 1, 0, 3]], "5 slots"),
        ([[0, 1, 2, 3, 0, True]] * 2, "holds True"),
    ],
)
def test_every_wrong_map_is_refused(engine, wrong, told):
    check_map(PLAN, 4, 3, layers=2, engine=engine, redundant=2)
    with pytest.raises(ValueError, match=told):
        check_map(wrong, 4, 3, layers=2, engine=engine, redundant=2)


def test_a_flag_of_spares_that_was_forgotten():
    with pytest.raises(ValueError, match="6 slots; 4 experts and 0 redundant"):
        check_map(PLAN, 4, 3, redundant=0)


def test_another_key_beside_the_map(tmp_path):
    file = tmp_path / "map.json"
    file.write_text(json.dumps({"physical_to_logical_map": PLAN.tolist(), "note": 1}))
    for engine in (None, "sglang"):
        with pytest.raises(ValueError, match="'note'"):
            check_map(file, 4, 3, engine=engine)


def test_slots_in_another_order_on_a_card():
    old = [[0, 1, 2, 3, 0, 1]]
    new = [[1, 0, 2, 3, 0, 1]]
    for engine in (None, "sglang", "vllm", "tensorrt-llm"):
        check_map(new, 4, 3, engine=engine, old=old)
    with pytest.raises(ValueError, match="layer 0, GPU 0: expert 1 stays and moves from slot 1"):
        check_map(new, 4, 3, engine="vllm-ascend", old=old)
    # an expert that comes anew may take any free slot
    check_map([[0, 2, 1, 3, 0, 1]], 4, 3, engine="vllm-ascend", old=old)
    with pytest.raises(ValueError, match="the old map has shape"):
        check_map(new, 4, 3, engine="vllm-ascend", old=PLAN)


def test_maps_that_a_public_report_asks_to_validate():
    "vllm-project/vllm pull request 49572: four experts in six slots."
    check_map([0, 1, 2, 3, 0, 1], 4, 3)
    with pytest.raises(ValueError, match="no slot holds expert 3"):
        check_map([0, 1, 2, 2, 0, 1], 4, 3)
    with pytest.raises(ValueError, match="slot 5: 4 is no expert"):
        check_map([0, 1, 2, 3, 0, 4], 4, 3)


def test_an_expert_twice_on_a_card():
    "vllm-project/vllm-ascend issue 9151: such a plan was dropped without a word."
    told = "layer 1, GPU 0: expert 3 stands in slots 0 and 1"
    with pytest.raises(ValueError, match=told):
        check_map([[0, 1, 2, 3, 0, 1], [3, 3, 1, 0, 2, 1]], 4, 3, engine="vllm-ascend")


def test_ten_sentences_at_most():
    with pytest.raises(ValueError, match="and 94 more"):
        check_map(np.full((1, 100), 7), 4, 100)


def test_numbers_of_layers_and_cards(tmp_path):
    file = tmp_path / "map.json"
    write_map(PLAN, file, "vllm-ascend", experts=4, gpus=3)
    said = json.loads(file.read_text())
    with pytest.raises(ValueError, match="the file has 3 GPUs; there are 2"):
        check_map(file, 4, 2, engine="vllm-ascend")
    said["layer_list"][1]["layer_id"] = 5
    said["moe_layer_count"] = 3
    file.write_text(json.dumps(said))
    check_map(file, 4, 3)
    with pytest.raises(ValueError, match=r"moe_layer_count is 3[^$]*calls itself 5"):
        check_map(file, 4, 3, engine="vllm-ascend")
    file = tmp_path / "map.yaml"
    file.write_text("num_slots: 4\ninitial_global_assignments:\n  3: [0,1,2,3]\n  5: [3,2,1,0]\n")
    check_map(file, 4, 2)
    with pytest.raises(ValueError, match="layer 4 is missing"):
        check_map(file, 4, 2, engine="tensorrt-llm")


def test_one_row_for_all_layers(tmp_path):
    file = tmp_path / "map"
    file.write_text("[0, 1, 2, 3, 0, 1]")
    assert read_map(file).shared
    assert check_map(file, 4, 3, layers=5).physical.shape == (5, 6)


def test_too_many_spares_for_vllm():
    wide = np.arange(4 * 300)[None] % 4
    check = dict(experts=4, gpus=300)
    check_map(wide, **check)
    with pytest.raises(ValueError, match="1196 redundant experts"):
        check_map(wide, **check, engine="vllm")


def test_a_writer_refuses_before_it_writes(tmp_path):
    file = tmp_path / "map.json"
    file.write_text("before")
    for wrong, engine, told in [
        (TWICE, "sglang", "stands in slots"),
        (PLAN, "tensorrt-llm", "ends in '.json'"),
        (PLAN, "lmdeploy", "engine is 'lmdeploy'"),
    ]:
        with pytest.raises(ValueError, match=told):
            write_map(wrong, file, engine, experts=4, gpus=3)
    with pytest.raises(ValueError, match="experts is not given"):
        write_map(PLAN, file, gpus=3)
    with pytest.raises(ValueError, match="gpus is 2, and the map has 3"):
        write_map(ExpertMap(PLAN, gpus=3), file, experts=4, gpus=2)
    assert file.read_text() == "before"
    with pytest.raises(ValueError, match=r"ends in '\.JSON'"):
        write_map(PLAN, tmp_path / "map.JSON", experts=4, gpus=3)
    with pytest.raises(OSError):
        write_map(PLAN, tmp_path / "nowhere" / "map.json", experts=4, gpus=3)


def test_maps_in_arrays(tmp_path):
    np.save(tmp_path / "a.npy", PLAN)
    np.savez(tmp_path / "b", physical_to_logical_map=PLAN, expert_count=[[2, 2, 1, 1]])
    np.save(tmp_path / "c.npy", PLAN.reshape(2, 3, 2))
    (tmp_path / "d.csv").write_text("\n".join(",".join(map(str, row)) for row in PLAN))
    ExpertMap(PLAN).save(tmp_path / "e.json")
    for name in ("a.npy", "b.npz", "c.npy", "d.csv", "e.json"):
        read = read_map(tmp_path / name)
        assert np.array_equal(read.physical, PLAN), name
    assert read_map(tmp_path / "c.npy").gpus == 3
    assert "EPLB" in read_map(tmp_path / "b.npz").summary()


def test_a_map_travels(tmp_path):
    read = ExpertMap(PLAN, gpus=3, remarks=["odd"])
    read.save(tmp_path / "map.json")
    assert ExpertMap.load(tmp_path / "map.json") == read
    assert read.to_frame().shape == (2, 6) and "odd" in read.summary()
    with pytest.raises(ValueError):
        read.physical[0, 0] = 1


# Recordings, each as its maker writes it


def counts(*shape, seed=0):
    return RNG(seed).integers(1, 100, shape)


def spread(loads, table, rng):
    "Counts of slots whose sums are the loads (steps, layers, m)."
    out = np.zeros((*loads.shape[:2], table.shape[-1]), int)
    for t, layer in np.ndindex(loads.shape[:2]):
        for expert, load in enumerate(loads[t, layer]):
            where = np.flatnonzero(table[layer] == expert)
            out[t, layer, where] = rng.multinomial(load, np.ones(len(where)) / len(where))
    return out


def test_arrays_of_loads(tmp_path):
    x = counts(3, 2, 4)
    np.save(tmp_path / "a.npy", x)
    np.savez(tmp_path / "b.npz", other=np.zeros(3), weight=x)
    np.savez_compressed(tmp_path / "c.npz", x.astype(np.float32))
    (tmp_path / "d.json").write_text(json.dumps(x.tolist()))
    (tmp_path / "e").write_text(json.dumps({"weight": x.tolist()}))
    for name in ("a.npy", "b.npz", "c.npz", "d.json", "e"):
        read = read_loads(tmp_path / name)
        assert np.array_equal(read.loads, x) and read.source == "array", name
    for text in ("1,2,3\n4,5,6\n", "a,b,c\n1;2;3\n4; 5; 6", "1 2 3\n4 5 6\n", "1\t2\t3\n4\t5\t6\n"):
        (tmp_path / "f.csv").write_text(text)
        assert np.array_equal(read_loads(tmp_path / "f.csv").total, [[1, 2, 3], [4, 5, 6]])
    np.save(tmp_path / "g.npy", np.asfortranarray(x))
    assert np.array_equal(read_loads(tmp_path / "g.npy").loads, x)
    np.save(tmp_path / "h.npy", np.array([250, 250], np.uint8))
    assert read_loads(tmp_path / "h.npy").total.sum() == 500


def test_counts_above_what_32_bits_hold_are_told_apart(tmp_path):
    np.save(tmp_path / "a.npy", np.array([2**24, 2**24 + 1, 2**40 + 1]))
    assert read_loads(tmp_path / "a.npy").total.tolist() == [[2**24, 2**24 + 1, 2**40 + 1]]
    np.save(tmp_path / "a.npy", np.array([2**53, 2**53]))
    with pytest.raises(ValueError, match=r"2\*\*53"):
        read_loads(tmp_path / "a.npy")


def test_small_numbers_may_be_tokens(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[[0, 3]], [[2, 1]]], np.uint8))
    with pytest.raises(ValueError, match="routed_experts"):
        read_loads(tmp_path / "a.npy")
    np.savez(tmp_path / "b.npz", routed_experts=np.array([[[0, 3]], [[2, 1]]], np.uint8))
    assert read_loads(tmp_path / "b.npz", experts=4).total.tolist() == [[1, 1, 1, 1]]


def test_an_empty_step_and_a_dense_layer(tmp_path):
    x = counts(4, 3, 4)
    x[1], x[:, 0] = 0, 0
    (tmp_path / "a").write_text(json.dumps({"rank": 0, "logical_count": x.tolist()}))
    read = read_loads(tmp_path / "a")
    assert np.array_equal(read.loads, x[[0, 2, 3]])
    assert "1 of 4 steps had no load" in read.summary() and "no load in layer 0" in read.summary()
    (tmp_path / "a").write_text(json.dumps({"logical_count": x[[0, 2]].tolist()}))
    assert "not in order of time" in read_loads(tmp_path / "a").summary()
    (tmp_path / "a").write_text(json.dumps({"logical_count": (0 * x).tolist()}))
    with pytest.raises(ValueError, match="no load at all"):
        read_loads(tmp_path / "a")


def window(x, rng, table=PLAN, **more):
    return {
        "expert_load_window": spread(x, table, rng),
        "physical_to_logical_map": table,
        **more,
    }


def test_a_window_of_vllm(tmp_path):
    rng = RNG(1)
    x, y = counts(3, 2, 4), counts(3, 2, 4, seed=5)
    np.savez(tmp_path / "r0.npz", **window(x, rng, rank=0))
    read = read_loads(tmp_path / "r0.npz")
    assert np.array_equal(read.loads, x)
    assert "only rank 0" in read.summary() and "not seen" in read.summary()
    np.savez(tmp_path / "r1.npz", **window(y, rng, rank=1))
    read = read_loads(tmp_path)
    assert np.array_equal(read.loads, x + y) and "summed over 2 ranks" in read.summary()
    with pytest.raises(ValueError, match="2 of 4 ranks are not here: 2, 3"):
        read_loads(tmp_path, gpus=4)
    np.savez(tmp_path / "r1.npz", **window(y, rng, PLAN[::-1], rank=1))
    with pytest.raises(ValueError, match="another map"):
        read_loads(tmp_path)
    np.savez(tmp_path / "r1.npz", **window(y, rng, rank=0))
    with pytest.raises(ValueError, match="rank 0 is there twice"):
        read_loads(tmp_path)


def test_a_map_that_changes_within_a_window(tmp_path):
    rng, x = RNG(1), counts(3, 2, 4)
    tables = np.array([PLAN, PLAN, PLAN[::-1]])
    slots = np.concatenate([spread(x[t : t + 1], tables[t], rng) for t in range(3)])
    np.savez(tmp_path / "a", expert_load_window=slots, physical_to_logical_map=tables)
    read = read_loads(tmp_path / "a.npz")
    assert np.array_equal(read.loads, x) and "changes within" in read.summary()
    lines = [
        json.dumps({"expert_load_pass": s.tolist(), "physical_to_logical_map": t.tolist()})
        for s, t in zip(slots, tables)
    ]
    (tmp_path / "b").write_text("\n".join(lines))
    read = read_loads(tmp_path / "b", experts=4)
    assert np.array_equal(read.loads, x) and "the map changes 1 time" in read.summary()


def tokens(shape, m, seed=0):
    "Experts of each token, (tokens, layers, k), none twice for a token."
    return np.argsort(RNG(seed).random((*shape[:2], m)), axis=-1)[..., : shape[2]]


def npy64(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return base64.b64encode(stream.getvalue()).decode()


def counted(ids, m):
    return np.array([np.bincount(row.ravel(), minlength=m) for row in ids.transpose(1, 0, 2)])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_routed_experts_of_vllm(tmp_path, dtype):
    ids = [tokens((n, 3, 2), 8, n).astype(dtype) for n in (5, 9)]
    answers = [{"id": i, "choices": [{"routed_experts": npy64(x)}]} for i, x in enumerate(ids)]
    want = [counted(x, 8) for x in ids]
    (tmp_path / "a").write_text("\n".join(map(json.dumps, answers)))
    assert np.array_equal(read_loads(tmp_path / "a", experts=8).loads, want)
    (tmp_path / "b").write_text(json.dumps(answers[0]))
    assert np.array_equal(read_loads(tmp_path / "b", experts=8).loads, want[:1])
    with pytest.raises(ValueError, match="experts is not given"):
        read_loads(tmp_path / "a")
    with pytest.raises(ValueError, match="experts are 0 to 3"):
        read_loads(tmp_path / "a", experts=4)
    (tmp_path / "c").write_text(json.dumps({"choices": [{"text": "hello"}]}))
    with pytest.raises(ValueError, match="no routed experts"):
        read_loads(tmp_path / "c", experts=8)


def safetensors(arrays, kinds=None):
    "As the format's own library lays it out: offsets in a row, the header padded with blanks."
    names = {np.dtype(np.int64): "I64", np.dtype(np.int32): "I32", np.dtype(np.float32): "F32"}
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for key, x in arrays.items():
        data = x.tobytes()
        header[key] = {
            "dtype": names[x.dtype],
            "shape": list(x.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + body


def tensorrt(folder, x, first=3, iteration=100):
    "A rank a file; x is (ranks, steps, layers, m)."
    (folder / "meta_info.json").write_text(
        json.dumps({"num_experts": x.shape[-1], "num_experts_per_token": 8})
    )
    for rank, steps in enumerate(x):
        rows = {
            f"{iteration + t}_{first + layer}": row.astype(np.int32)
            for t, step in enumerate(steps)
            for layer, row in enumerate(step)
        }
        (folder / f"rank{rank}.safetensors").write_bytes(safetensors(rows))


def test_statistic_of_tensorrt(tmp_path):
    x = counts(2, 3, 2, 4)
    tensorrt(tmp_path, x)
    both = {"100_3": np.zeros((4, 4), np.int32)}
    (tmp_path / "cooccurrence_rank0.safetensors").write_bytes(safetensors(both))
    read = read_loads(tmp_path)
    assert np.array_equal(read.loads, x.sum(0)) and read.layers == (3, 4)
    assert "summed over 2 ranks" in read.summary() and "cooccurrence" in read.summary()
    with pytest.raises(ValueError, match="of 4 ranks"):
        read_loads(tmp_path, gpus=4)
    more = safetensors({"104_3": np.ones(4, np.int32), "104_4": np.ones(4, np.int32)})
    (tmp_path / "rank2.safetensors").write_bytes(more)
    assert "iterations are missing" in read_loads(tmp_path).summary()
    (tmp_path / "rank2.safetensors").write_bytes(safetensors({"105_3": np.ones(4, np.int32)}))
    with pytest.raises(ValueError, match="lacks a layer"):
        read_loads(tmp_path)


def test_router_trace_of_megatron(tmp_path):
    m, want = 8, np.zeros((2, 3, 8))
    for rank in range(2):
        lines = []
        for step in range(2):
            for layer in range(3):
                ids = tokens((5, 1, 2), m, 100 * rank + 10 * step + layer)[:, 0]
                want[step, layer] += np.bincount(ids.ravel(), minlength=m)
                who = {"step": step, "stage": 0, "block": 0, "layer": layer + 1, "rank": rank}
                lines.append(who | {"num_tokens": 5, "topk": 2, "top_indices": ids.tolist()})
        (tmp_path / f"trace_{rank}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    read = read_loads(tmp_path, experts=m)
    assert np.array_equal(read.loads, want) and read.layers == (1, 2, 3)
    with pytest.raises(ValueError, match="has rank 1; ranks are 0 to 0"):
        read_loads(tmp_path / "trace_1.jsonl", experts=m, gpus=1)
    with pytest.raises(ValueError, match="rank 1, and 1 of 2 ranks are not here: 0"):
        read_loads(tmp_path / "trace_1.jsonl", experts=m)
    lines[0]["num_tokens"] = 6
    (tmp_path / "trace_1.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(ValueError, match=r"top_indices has shape \(5, 2\)"):
        read_loads(tmp_path, experts=m)


def test_load_history_of_adrs(tmp_path):
    x = counts(5, 2, 4)
    steps = [{"logical_expert_load": step.tolist()} for step in x]
    (tmp_path / "a.json").write_text(json.dumps({"load_history": steps}))
    assert np.array_equal(read_loads(tmp_path / "a.json").loads, x)
    (tmp_path / "b").write_text("\n".join(map(json.dumps, steps)))
    assert np.array_equal(read_loads(tmp_path / "b").loads, x)


def test_scores_of_esft(tmp_path):
    m, lengths, want = 8, (3, 5), np.zeros((2, 11, 8))
    for layer in range(1, 12):
        lines = []
        for i, n in enumerate(lengths):
            ids = tokens((n, 1, 6), m, 10 * layer + i)[:, 0].ravel()
            want[i, layer - 1] = np.bincount(ids, minlength=m)
            lines.append("\t".join(map(str, ids)) + "\t\t" + "\t".join(["0.1"] * len(ids)))
        (tmp_path / f"expert_weights_{layer}.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "summary.json").write_text('{"1": [0.5]}')
    read = read_loads(tmp_path, experts=m)
    assert np.array_equal(read.loads, want) and read.layers == tuple(range(1, 12))
    assert "left out, as no tokens: summary.json" in read.summary()
    assert read.source == "ESFT scores"


def test_a_name_says_nothing(tmp_path):
    x = counts(3, 2, 4)
    np.save(tmp_path / "a.npy", x)
    (tmp_path / "a.npy").rename(tmp_path / "loads.json")
    assert np.array_equal(read_loads(tmp_path / "loads.json").loads, x)
    (tmp_path / "b.pt").write_text(json.dumps({"logical_count": x.tolist()}))
    assert np.array_equal(read_loads(tmp_path / "b.pt").loads, x)


def test_loads_travel(tmp_path):
    read = RecordedLoads(counts(5, 2, 4), remarks=["odd"], layers=(3, 4))
    read.save(tmp_path / "loads.json")
    assert RecordedLoads.load(tmp_path / "loads.json") == read
    assert read.windows(2).shape == (2, 2, 4) and list(read.to_frame().index) == [3, 4]
    assert np.array_equal(read.windows(5)[0], read.total)
    with pytest.raises(ValueError, match="steps"):
        read.windows(6)


def test_without_torch_its_files_are_refused_with_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    (tmp_path / "b.pt").write_bytes(b"\x80\x02}q\x00.")
    for name in ("a.pt", "b.pt"):
        for read in (read_loads, read_map):
            with pytest.raises(ValueError, match=r"serving-or\[torch\]"):
                read(tmp_path / name)


# Broken and hostile files


def header(shape, kind="<i8", data=b""):
    head = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    head += b" " * (63 - (len(head) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


HOSTILE = {
    "empty": b"",
    "blank": b" \n\n ",
    "bytes": bytes(range(256)),
    "header promises": header((10**12,)),
    "header is negative": header((-1, 4), data=b"\x00" * 8),
    "header of objects": header((1,), "|O", b"\x80\x04N."),
    "header of texts": header((1,), "<U1", b"\x00" * 4),
    "header is code": b"\x93NUMPY\x01\x00\x10\x00__import__('os')",
    "header is short": b"\x93NUMPY\x01",
    "version 9": b"\x93NUMPY\x09\x00" + b"\x00" * 100,
    "huge safetensors": struct.pack("<Q", 2**62) + b"{}",
    "safetensors": struct.pack("<Q", 2) + b"{}" + b"\x00" * 9,
    "safetensors header": struct.pack("<Q", 11) + b'{"a": [1 2]' + b"\x00",
    "nested": b"[" * 100_000 + b"]" * 100_000,
    "nested objects": b'{"weight":' * 50_000,
    "nan": b'{"weight": [[1, NaN]]}',
    "infinite": b'{"weight": [[1, 1e999]]}',
    "negative": b'{"weight": [[1, -1]]}',
    "twice": b'{"weight": [[1]], "weight": [[2]]}',
    "ragged": b'{"weight": [[1, 2], [3]]}',
    "texts": b'{"weight": [["1", "2"]]}',
    "booleans": b'{"weight": [[true, false]]}',
    "long": b'{"weight": [[' + b"9" * 5000 + b"]]}",
    "huge": b'{"weight": [[' + b"9" * 300 + b"]]}",
    "nothing": b'{"weight": []}',
    "null": b'{"weight": null}',
    "another": b'{"hello": 1, "world": 2}',
    "number": b"[[[[[1]]]]]",
    "truncated": b'{"logical_count": [[[1, 2',
    "passes": b'{"records": [], "last_physical_to_logical_map": [[0]]}',
    "passes of nothing": b'{"records": [{}], "last_physical_to_logical_map": [[0]]}',
    "window": b'{"expert_load_window": [[[1, 2]]], "physical_to_logical_map": [[0, 9999999999]]}',
    "adrs": b'{"load_history": [{"logical_expert_load": [[1]]}, {}]}',
    "base64": b'{"choices": [{"routed_experts": "!!!"}]}',
    "alias": b"a: &a [1,1,1]\nb: &b [*a,*a,*a]\n"
    + b"".join(
        b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % (i, i, *([i - 1] * 9))
        for i in range(99, 120)
    ),
    "esft": b"1\tx\t\t0.5\n",
    "table": b"1,2\n3,four\n",
    "ascend": b'{"moe_layer_count": 1, "layer_list": [{"device_list": [5]}]}',
    "tensorrt": b"num_slots: 2\ninitial_global_assignments: {x: [0, 1]}\n",
    "record": b'{"type": "experts.Schedule"}',
    "type": b'{"type": []}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_with_a_sentence(tmp_path, name):
    (tmp_path / "file").write_bytes(HOSTILE[name])
    for call in (
        lambda: read_loads(tmp_path / "file", experts=4),
        lambda: read_map(tmp_path / "file"),
        lambda: check_map(tmp_path / "file", 4, 2),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert 10 < len(str(caught.value)) < 2000


def test_an_archive_that_would_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(maps, "MOST_READ", 2**20)
    np.savez_compressed(tmp_path / "file.npz", np.zeros(2**20))
    assert (tmp_path / "file.npz").stat().st_size < 2**14
    for read in (read_loads, read_map):
        with pytest.raises(ValueError, match="unpacks to 8,388,"):
            read(tmp_path / "file.npz")


def test_what_is_no_file(tmp_path):
    for read in (read_loads, read_map):
        with pytest.raises(OSError):
            read(tmp_path / "nothing")
        for wrong in (None, 3, [1], b"bytes", "a\x00b"):
            with pytest.raises(ValueError):
                read(wrong)
    with pytest.raises(ValueError, match="0 files"):
        read_loads(tmp_path)
    with pytest.raises(ValueError, match="no ordinary file"):
        read_map(tmp_path)
    np.save(tmp_path / "a.npy", counts(2, 3))
    np.save(tmp_path / "b.npy", counts(2, 3))
    with pytest.raises(ValueError, match="2 files are there"):
        read_loads(tmp_path)


def valid(folder):
    "A file of each form that is one file."
    rng, x = RNG(0), counts(2, 2, 4)
    np.save(folder / "loads.npy", x)
    np.savez(folder / "window.npz", **window(x, rng))
    np.savez_compressed(folder / "weight.npz", weight=x)
    write_map(PLAN, folder / "sglang.json", "sglang", 4, 3)
    write_map(PLAN, folder / "ascend.json", "vllm-ascend", 4, 3)
    write_map(PLAN, folder / "trt.yaml", "tensorrt-llm", 4, 3)
    ids = tokens((4, 2, 2), 4).astype(np.uint8)
    (folder / "routed").write_text(json.dumps({"choices": [{"routed_experts": npy64(ids)}]}))
    (folder / "stat").write_text(json.dumps({"logical_count": x.tolist()}))
    (folder / "safe").write_bytes(safetensors({"1_3": np.arange(4)}))
    (folder / "csv").write_text("1,2,3\n4,5,6\n")
    (folder / "esft").write_text("0\t1\t\t0.5\t0.5\n2\t3\t\t0.5\t0.5\n")
    return [p.read_bytes() for p in sorted(folder.iterdir())]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return valid(tmp_path_factory.mktemp("good"))


def only_documented(file):
    "A reader answers, or raises ValueError."
    for call in (
        lambda: read_loads(file, experts=4),
        lambda: read_map(file),
        lambda: check_map(file, 4, 3, engine="vllm-ascend"),
    ):
        try:
            call()
        except ValueError as error:
            assert str(error)


@settings(max_examples=cases(20000, 300))
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"{", b"[[", b"\x80"]),
)
def test_random_bytes(tmp_path_factory, data, start):
    file = tmp_path_factory.getbasetemp() / "random"
    file.write_bytes(start + data)
    only_documented(file)


@settings(max_examples=cases(20000, 400))
@given(data=st.data())
def test_valid_files_with_some_bytes_changed(tmp_path_factory, good, data):
    raw = bytearray(data.draw(st.sampled_from(good)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        how = data.draw(st.sampled_from(["set", "cut", "drop", "double"]))
        if how == "set":
            raw[at] = data.draw(st.integers(0, 255))
        elif how == "cut" and at > 0:
            del raw[at:]
        elif how == "drop":
            del raw[at]
        else:
            raw[at:at] = raw[at : at + 20]
        raw = raw or bytearray(b" ")
    file = tmp_path_factory.getbasetemp() / "changed"
    file.write_bytes(bytes(raw))
    only_documented(file)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    *(
                        "physical_to_logical_map",
                        "logical_count",
                        "records",
                        "layer_list",
                        "choices",
                    ),
                    *("initial_global_assignments", "num_slots", "moe_layer_count", "device_list"),
                    *("device_expert", "routed_experts", "load_history", "logical_expert_load"),
                    *("last_physical_to_logical_map", "expert_load_window", "top_indices", "step"),
                    *(
                        "expert_load_pass",
                        "rank",
                        "forward_pass_id",
                        "global_physical_count",
                        "type",
                    ),
                    *("topk_ids_of_layer", "num_tokens", "topk", "layer", "weight", "layer_id"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=cases(20000, 500))
@given(JSONS, st.booleans())
def test_objects_of_the_right_names_and_the_wrong_things(tmp_path_factory, value, in_lines):
    file = tmp_path_factory.getbasetemp() / "objects"
    text = json.dumps(value)
    file.write_text(f"{text}\n{text}" if in_lines else text)
    only_documented(file)


# The policy and the function


def test_a_policy_of_vllm():
    x = counts(3, 8)
    new = VllmPolicy.rebalance_experts(x, 12, 1, 1, 4)
    assert new.shape == (3, 12) and new.dtype == np.int64 and new.flags.writeable
    check_map(new, 8, 4, redundant=4)
    again = VllmPolicy.rebalance_experts(x, 12, 0, 1, 4, new)
    assert np.array_equal(again, new)
    # a map with empty slots, of another width, or without an expert is none to start from
    for old in (np.full((3, 12), -1), new[:, :8], np.where(new == 7, 6, new)):
        check_map(VllmPolicy.rebalance_experts(x, 12, 1, 1, 4, old), 8, 4)
    for weight, slots in [(x[0], 12), (x, 7), (x - 1000, 12), (x * np.nan, 12)]:
        with pytest.raises(ValueError):
            VllmPolicy.rebalance_experts(weight, slots, 1, 1, 4)


@settings(max_examples=cases(400, 20))
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4))
def test_three_arrays_of_eplb(seed, gpus, slots):
    rng = RNG(seed)
    n = gpus * slots
    m = int(rng.integers(slots, n + 1))
    table, where, count = rebalance_experts(rng.integers(0, 50, (2, m)), n, 1, 1, gpus)
    assert table.shape == (2, n) and where.shape == (2, m, count.max())
    assert np.array_equal(count.sum(axis=1), [n, n])
    for layer, expert in np.ndindex(2, m):
        mine = where[layer, expert]
        assert np.array_equal(np.sort(mine[mine >= 0]), np.flatnonzero(table[layer] == expert))
        assert (mine >= 0).sum() == count[layer, expert]


def test_tensors_in_tensors_out():
    torch = pytest.importorskip("torch", reason="skipped: no torch")
    x = torch.tensor(counts(3, 8)).float()
    new = VllmPolicy.rebalance_experts(x, 12, 1, 1, 4)
    assert isinstance(new, torch.Tensor) and new.dtype == torch.int64
    assert all(isinstance(t, torch.Tensor) for t in rebalance_experts(x, 12, 1, 1, 4))
    check_map(new, 8, 4)


def test_the_table_of_engines_is_what_the_code_runs_on():
    assert set(ENGINES) == set(maps._WRITERS)
    used = {rule for engine in ENGINES.values() for rule in engine.rules}
    assert used == set(maps._RULES)
