"""Recordings, each as its maker writes it, and broken ones."""

import base64
import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.experts.recordings import RecordedLoads, read_loads
from tests.long import cases
from tests.tools.hostile import HOSTILE, JSONS, RANDOM, safetensors_file, spoiled

RNG = np.random.default_rng
PLAN = np.array([[0, 1, 2, 3, 0, 1], [3, 2, 1, 0, 3, 2]])


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
    for text in ("1,2,3\n4,5,6\n", "a;b;c\n1;2;3\n4; 5; 6", "1 2 3\n4 5 6\n", "1\t2\t3\n4\t5\t6\n"):
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
        (folder / f"rank{rank}.safetensors").write_bytes(safetensors_file(rows))


def test_statistic_of_tensorrt(tmp_path):
    x = counts(2, 3, 2, 4)
    tensorrt(tmp_path, x)
    both = {"100_3": np.zeros((4, 4), np.int32)}
    (tmp_path / "cooccurrence_rank0.safetensors").write_bytes(safetensors_file(both))
    read = read_loads(tmp_path)
    assert np.array_equal(read.loads, x.sum(0)) and read.layers == (3, 4)
    assert "summed over 2 ranks" in read.summary() and "cooccurrence" in read.summary()
    with pytest.raises(ValueError, match="of 4 ranks"):
        read_loads(tmp_path, gpus=4)
    more = safetensors_file({"104_3": np.ones(4, np.int32), "104_4": np.ones(4, np.int32)})
    (tmp_path / "rank2.safetensors").write_bytes(more)
    assert "iterations are missing" in read_loads(tmp_path).summary()
    (tmp_path / "rank2.safetensors").write_bytes(safetensors_file({"105_3": np.ones(4, np.int32)}))
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


# Broken and hostile files


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_with_a_sentence(tmp_path, name):
    (tmp_path / "file").write_bytes(HOSTILE[name])
    with pytest.raises(ValueError) as caught:
        read_loads(tmp_path / "file", experts=4)
    assert 10 < len(str(caught.value)) < 2000


def test_what_is_no_recording(tmp_path):
    with pytest.raises(OSError):
        read_loads(tmp_path / "nothing")
    with pytest.raises(ValueError, match="0 files"):
        read_loads(tmp_path)
    np.save(tmp_path / "a.npy", counts(2, 3))
    np.save(tmp_path / "b.npy", counts(2, 3))
    with pytest.raises(ValueError, match="2 files are there"):
        read_loads(tmp_path)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    "A file of each form that is one file."
    folder, rng, x = tmp_path_factory.mktemp("good"), RNG(0), counts(2, 2, 4)
    np.save(folder / "loads.npy", x)
    np.savez(folder / "window.npz", **window(x, rng))
    np.savez_compressed(folder / "weight.npz", weight=x)
    ids = tokens((4, 2, 2), 4).astype(np.uint8)
    (folder / "routed").write_text(json.dumps({"choices": [{"routed_experts": npy64(ids)}]}))
    (folder / "stat").write_text(json.dumps({"logical_count": x.tolist()}))
    (folder / "safe").write_bytes(safetensors_file({"1_3": np.arange(4)}))
    (folder / "csv").write_text("1,2,3\n4,5,6\n")
    (folder / "esft").write_text("0\t1\t\t0.5\t0.5\n2\t3\t\t0.5\t0.5\n")
    return [p.read_bytes() for p in sorted(folder.iterdir())]


def only_documented(file):
    "A reader answers, or raises ValueError."
    try:
        read_loads(file, experts=4)
    except ValueError as error:
        assert str(error)


@settings(max_examples=cases(20000, 200))
@given(RANDOM)
def test_random_bytes(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "random"
    file.write_bytes(data)
    only_documented(file)


@settings(max_examples=cases(20000, 300))
@given(data=st.data())
def test_valid_files_with_some_bytes_changed(tmp_path_factory, good, data):
    file = tmp_path_factory.getbasetemp() / "changed"
    file.write_bytes(data.draw(spoiled(good)))
    only_documented(file)


@settings(max_examples=cases(20000, 500))
@given(JSONS, st.booleans())
def test_objects_of_the_right_names_and_the_wrong_things(tmp_path_factory, value, in_lines):
    file = tmp_path_factory.getbasetemp() / "objects"
    text = json.dumps(value)
    file.write_text(f"{text}\n{text}" if in_lines else text)
    only_documented(file)


# Small mistakes of makers


def refused(tmp_path, value, told, **more):
    (tmp_path / "file").write_text(json.dumps(value))
    with pytest.raises(ValueError, match=told):
        read_loads(tmp_path / "file", **more)


def test_one_line_is_a_line(tmp_path):
    line = {"step": 0, "layer": 1, "rank": 0, "num_tokens": 1, "topk": 2, "top_indices": [[0, 3]]}
    (tmp_path / "a").write_text(json.dumps(line))
    read = read_loads(tmp_path / "a", experts=4)
    assert read.source == "Megatron router trace" and read.total.tolist() == [[1, 0, 0, 1]]
    line = {"expert_load_pass": [[1, 2, 3]], "physical_to_logical_map": [[0, 1, 0]]}
    (tmp_path / "a").write_text(json.dumps(line))
    assert read_loads(tmp_path / "a").total.tolist() == [[4, 2]]


def test_ranks_are_whole(tmp_path):
    made = {"expert_load_window": [[[3, 1]]], "physical_to_logical_map": [[0, 1]]}
    for rank in (0.5, -1, True, "0", [0], None, 10**7):
        refused(tmp_path, made | {"rank": rank}, "rank")
    np.savez(tmp_path / "a.npz", **{k: np.array(v) for k, v in made.items()}, rank=np.array(0))
    assert read_loads(tmp_path / "a.npz", gpus=1).total.tolist() == [[3, 1]]


def test_two_arrays_of_loads(tmp_path):
    refused(tmp_path, {"weight": [[1, 2]], "loads": [[3, 4]]}, "one of them must be left out")


def test_slots_and_maps_that_do_not_fit(tmp_path):
    made = {"expert_load_window": [[[3, 1]]], "physical_to_logical_map": [[0, 1]]}
    refused(tmp_path, made | {"physical_to_logical_map": [[0, -1]]}, "calls empty")
    refused(tmp_path, made | {"physical_to_logical_map": [[-1, -1]]}, "experts -1 to -1")
    refused(tmp_path, made | {"physical_to_logical_map": [[0, -2]]}, "experts -2 to 0")
    refused(tmp_path, made | {"physical_to_logical_map": [[0, 1, 2]]}, "a map of shape")
    refused(tmp_path, made, "experts 0 to 1, of 1", experts=1)
    # an empty slot without tokens is no harm
    made["expert_load_window"] = [[[3, 0]]]
    (tmp_path / "file").write_text(json.dumps(made | {"physical_to_logical_map": [[1, -1]]}))
    assert read_loads(tmp_path / "file").total.tolist() == [[0, 3]]


def test_padding_is_counted_apart(tmp_path):
    ids = np.array([[[0, -1]], [[2, 1]]])
    (tmp_path / "file").write_text(json.dumps({"routed_experts": ids.tolist()}))
    read = read_loads(tmp_path / "file", experts=3)
    assert read.total.tolist() == [[1, 1, 1]] and "padding in 1 place" in read.summary()
    refused(tmp_path, {"routed_experts": [[[0, -2]]]}, "holds expert -2", experts=3)
    refused(tmp_path, {"routed_experts": [[[0, 3]]]}, "holds expert 3", experts=3)


# SGLang's passes, by their fields; its own recorder stands in tests/clients


def passes(ranks, count, table, skip=(), seed=0):
    "A dump of each rank, and the slots' counts of each pass that every rank has."
    rng = RNG(seed)
    slots = rng.integers(1, 9, (ranks, count, *np.shape(table)))
    dumps = [
        {
            "records": [
                {"forward_pass_id": t, "rank": rank, "gatherer_key": "primary"}
                | {"global_physical_count": slots[rank, t].tolist()}
                for t in range(count)
                if (rank, t) not in skip
            ],
            "last_physical_to_logical_map": np.asarray(table).tolist(),
        }
        for rank in range(ranks)
    ]
    return dumps, slots.sum(axis=0)


def stored(folder, dumps):
    folder.mkdir()
    for i, dump in enumerate(dumps):
        (folder / f"{i}.json").write_text(json.dumps(dump))
    return folder


def by_expert(slots):
    out = np.zeros((len(slots), *PLAN.shape[:1], 4))
    for t, layer, p in np.ndindex(*slots.shape):
        out[t, layer, PLAN[layer, p]] += slots[t, layer, p]
    return out


def test_passes_of_sglang(tmp_path):
    dumps, slots = passes(3, 4, PLAN)
    read = read_loads(stored(tmp_path / "all", dumps))
    assert np.array_equal(read.loads, by_expert(slots)) and "over 3 ranks" in read.summary()
    with pytest.raises(ValueError, match="1 of 4 ranks are not here: 3"):
        read_loads(tmp_path / "all", gpus=4)
    # a pass that one rank has not recorded is left out, and said
    dumps, slots = passes(3, 4, PLAN, skip={(1, 2)})
    read = read_loads(stored(tmp_path / "gap", dumps))
    assert np.array_equal(read.loads, by_expert(slots)[[0, 1, 3]])
    assert "1 passes lack a rank" in read.summary()


def test_passes_of_sglang_that_are_refused(tmp_path):
    dumps, _ = passes(2, 2, PLAN)
    with pytest.raises(ValueError, match="pass 0 of rank 0 is there twice"):
        read_loads(stored(tmp_path / "twice", [dumps[0], dumps[0]]))
    other = dumps[1] | {"last_physical_to_logical_map": PLAN[::-1].tolist()}
    with pytest.raises(ValueError, match="recorded across a rebalance"):
        read_loads(stored(tmp_path / "moved", [dumps[0], other]))
    for record in dumps[0]["records"]:
        half = np.array(record["global_physical_count"])
        half[:, 3:] = 0
        record["global_physical_count"] = half.tolist()
    with pytest.raises(ValueError, match="lower half of the slots"):
        read_loads(stored(tmp_path / "half", dumps[:1]))
    assert len(read_loads(tmp_path / "half", gpus=1).loads) == 2


def test_ranks_and_layers_that_are_there_twice_or_not(tmp_path):
    line = {"num_tokens": 1, "topk": 1, "top_indices": [[0]]}
    lines = [line | {"step": t, "layer": 0, "rank": r} for t, r in ((0, 0), (0, 1), (1, 0))]
    (tmp_path / "a").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(ValueError, match="lacks a layer or a rank"):
        read_loads(tmp_path / "a", experts=2)
    (tmp_path / "a").unlink()
    for name in ("x_1.txt", "y_1.txt"):
        (tmp_path / name).write_text("0\t1\t\t0.5\t0.5\n")
    with pytest.raises(ValueError, match="same layer's number"):
        read_loads(tmp_path, experts=2)
