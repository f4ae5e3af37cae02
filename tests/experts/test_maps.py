"""Files of the engines: round trips, the table of wrong maps, and broken files."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.experts import maps
from serving_or.experts.maps import (
    ENGINES,
    ExpertMap,
    VllmPolicy,
    check_map,
    read_map,
    rebalance_experts,
    write_map,
)
from tests.long import cases
from tests.tools.hostile import HOSTILE, JSONS, RANDOM, spoiled

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


def counts(*shape, seed=0):
    return RNG(seed).integers(1, 100, shape)


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


# Broken and hostile files


def refuses(read, file):
    with pytest.raises(ValueError) as caught:
        read(file)
    assert 10 < len(str(caught.value)) < 2000


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_with_a_sentence(tmp_path, name):
    (tmp_path / "file").write_bytes(HOSTILE[name])
    refuses(read_map, tmp_path / "file")
    refuses(lambda file: check_map(file, 4, 2), tmp_path / "file")


def test_what_is_no_map(tmp_path):
    with pytest.raises(OSError):
        read_map(tmp_path / "nothing")
    with pytest.raises(ValueError, match="no ordinary file"):
        read_map(tmp_path)
    (tmp_path / "esft").write_text("1\t2\t\t0.5\t0.5\n")
    with pytest.raises(ValueError, match="holds tokens"):
        read_map(tmp_path / "esft")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    "A file of each form."
    folder = tmp_path_factory.mktemp("good")
    for engine in ENGINES:
        write_map(PLAN, folder / f"{engine}{ending(engine)}", engine, 4, 3)
    np.savez(folder / "three.npz", physical_to_logical_map=PLAN, expert_count=[[2, 2, 1, 1]])
    np.save(folder / "array.npy", PLAN)
    ExpertMap(PLAN).save(folder / "own.json")
    (folder / "csv").write_text("1,2,3\n4,5,6\n")
    return [p.read_bytes() for p in sorted(folder.iterdir())]


def only_documented(file):
    "A reader answers, or raises ValueError."
    for call in (
        lambda: read_map(file),
        lambda: check_map(file, 4, 3, engine="vllm-ascend"),
    ):
        try:
            call()
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


@settings(max_examples=cases(20000, 300))
@given(JSONS)
def test_objects_of_the_right_names_and_the_wrong_things(tmp_path_factory, value):
    file = tmp_path_factory.getbasetemp() / "objects"
    file.write_text(json.dumps(value))
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


# Layers' numbers


TRT = "num_slots: 2\ninitial_global_assignments:\n"


@pytest.mark.parametrize("key", ["03", "-3", "1_0", "1.0", "x", "1234567", "\u0663"])
def test_a_layer_number_that_is_none(tmp_path, key):
    (tmp_path / "map").write_text(f"{TRT}  3: [0, 1]\n  {key}: [1, 0]\n")
    with pytest.raises(ValueError, match="no layer's number"):
        read_map(tmp_path / "map")


def test_a_layer_that_stands_twice(tmp_path):
    (tmp_path / "map").write_text(f"{TRT}  3: [0, 1]\n  3: [1, 0]\n")
    with pytest.raises(ValueError, match="stands here again"):
        read_map(tmp_path / "map")


def test_rows_that_are_far_apart_are_told_and_not_counted(tmp_path):
    (tmp_path / "map").write_text(f"{TRT}  0: [0, 1]\n  999999: [1, 0]\n")
    check_map(tmp_path / "map", 2, 2)
    for engine in ("tensorrt-llm", "sglang"):
        with pytest.raises(ValueError, match="layer 1 is missing between layers 0 and 999999"):
            check_map(tmp_path / "map", 2, 2, engine=engine)


@pytest.mark.parametrize("layers", [(3, 3), (4, 3), ("a", 3), (1.5, 3), (0,)])
def test_numbers_of_rows(layers):
    with pytest.raises(ValueError, match="layers"):
        ExpertMap(PLAN, layers=layers)


def test_a_map_that_knows_its_first_layer_keeps_it(tmp_path):
    read = ExpertMap(PLAN, gpus=3, layers=(3, 4))
    write_map(read, tmp_path / "map.yaml", "tensorrt-llm", experts=4)
    again = read_map(tmp_path / "map.yaml")
    assert again.layers == (3, 4)
    write_map(again, tmp_path / "map.json", "sglang", experts=4, gpus=3)
    rows = read_map(tmp_path / "map.json").physical
    assert np.array_equal(rows[3:], PLAN) and np.array_equal(rows[:3], [[0, 1, 2, 3, 0, 1]] * 3)
    write_map(again, tmp_path / "map.yaml", "tensorrt-llm", experts=4, gpus=3, dense=1)
    assert read_map(tmp_path / "map.yaml").layers == (1, 2)
    write_map(again, tmp_path / "map.json", "vllm-ascend", experts=4, gpus=3)
    assert np.array_equal(read_map(tmp_path / "map.json").physical, PLAN)


def test_rows_slots_and_places_at_their_limits(tmp_path):
    for layers in (1, 3):
        with pytest.raises(ValueError, match=f"2 rows for {layers} layer"):
            check_map(PLAN, 4, 3, layers=layers)
    # 1023 spares are the most that vLLM has room for
    for spares, fine in ((1023, True), (1024, False)):
        wide = np.arange(1 + spares)[None] * 0
        if fine:
            check_map(wide, 1, 1 + spares, engine="vllm")
        else:
            with pytest.raises(ValueError, match="1024 redundant"):
                check_map(wide, 1, 1 + spares, engine="vllm")
    # one copy of a double goes: the other has not moved
    check_map([[0, 2, 1, 3]], 4, 2, engine="vllm-ascend", old=[[0, 0, 1, 3]])
    file = tmp_path / "map.json"
    write_map(PLAN, file, "vllm-ascend", experts=4, gpus=3)
    said = json.loads(file.read_text())
    said["layer_list"][1]["device_list"][2]["device_id"] = 0
    file.write_text(json.dumps(said))
    with pytest.raises(ValueError, match="layer 1: the card at place 2 calls itself 0"):
        check_map(file, 4, 3, engine="vllm-ascend")
    (tmp_path / "map.yaml").write_text("num_slots: 3\ninitial_global_assignments:\n  3: [0, 1]\n")
    with pytest.raises(ValueError, match="num_slots is 3, and layer 3 has 2 slots"):
        read_map(tmp_path / "map.yaml")


def test_an_old_map_of_another_width_is_none_to_start_from():
    x = counts(2, 4)
    fresh = VllmPolicy.rebalance_experts(x, 6, 1, 1, 3)
    for width in (4, 8):
        old = np.tile(np.arange(width) % 4, (2, 1))
        assert np.array_equal(VllmPolicy.rebalance_experts(x, 6, 1, 1, 3, old), fresh)
