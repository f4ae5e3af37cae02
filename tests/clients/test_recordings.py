"""Dumps that SGLang's own recorder has made, read by ours."""

import numpy as np
import pytest

from serving_or.experts import check_map, read_loads, read_map, write_map
from tests.clients import engines

if not engines.ready():
    pytest.skip("skipped: no engines", allow_module_level=True)
torch = pytest.importorskip("torch", reason="skipped: no torch")

# a dense layer, then two with experts
TABLE = np.array([[0, 1, 2, 3, 0, 1], [0, 1, 2, 3, 0, 1], [3, 2, 1, 0, 3, 2]])
EXPERTS, GPUS, WIDTH = 4, 3, 8


def passes(count, seed):
    "Slots that tokens went to in each pass, None for the dense layer, padded with -1 to width 8."
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        ids = rng.permuted(np.tile(np.arange(6), (2, 5, 1)), axis=-1)[..., :2]
        wide = np.full((2, 5, WIDTH), -1)
        wide[..., :2] = ids
        made.append([None, *wide])
    return made


def loads(made):
    "Counts of experts (passes, layers, m)."
    out = np.zeros((len(made), 3, EXPERTS))
    for t, layers in enumerate(made):
        for layer, ids in enumerate(layers):
            if ids is not None:
                np.add.at(out[t, layer], TABLE[layer][ids[ids >= 0]], 1)
    return out


def record(folder, mode, made, rank=0, **more):
    take, dump = engines.recorder(TABLE, EXPERTS, GPUS, rank, mode, folder, **more)
    for t, layers in enumerate(made):
        take(t, layers)
    dump()


def test_a_buffer_that_is_not_full(tmp_path):
    made = passes(3, 1)
    record(tmp_path, "stat", made)
    (file,) = tmp_path.iterdir()
    read = read_loads(file)
    assert np.array_equal(read.loads, loads(made)) and read.source == "SGLang recorder, stat"
    assert "5 of 8 steps had no load" in read.summary()
    assert "no load in layer 0" in read.summary()


def test_a_buffer_that_wraps(tmp_path):
    made = passes(5, 2)
    record(tmp_path, "stat", made, buffer=3)
    (file,) = tmp_path.iterdir()
    read = read_loads(file)
    # passes 3 and 4 stand where 0 and 1 stood
    assert np.array_equal(read.loads, loads(made)[[3, 4, 2]])
    assert "not in order of time" in read.summary()


def test_a_buffer_without_end(tmp_path):
    made = passes(4, 2)
    record(tmp_path, "stat", made, buffer=-1)
    (file,) = tmp_path.iterdir()
    assert np.array_equal(read_loads(file).loads, loads(made))


@pytest.mark.parametrize("mode", ["per_pass", "per_token"])
def test_passes_of_every_rank(tmp_path, mode):
    parts = [passes(3, 10 + rank) for rank in range(GPUS)]
    for rank, made in enumerate(parts):
        record(tmp_path, mode, made, rank)
    read = read_loads(tmp_path)
    assert np.array_equal(read.loads, sum(map(loads, parts)))
    assert "summed over 3 ranks" in read.summary()
    assert "a rebalance in between is not seen" in read.summary()
    with pytest.raises(ValueError, match="1 of 4 ranks are not here: 3"):
        read_loads(tmp_path, gpus=4)
    next(f for f in tmp_path.iterdir() if f.name.endswith("_1.pt")).unlink()
    with pytest.raises(ValueError, match="1 of 3 ranks are not here: 1"):
        read_loads(tmp_path)


def test_sglang_reads_these_passes_alike(tmp_path):
    reader = engines.load("sglang.srt.eplb.eplb_simulator.reader")
    parts = [passes(3, 20 + rank) for rank in range(GPUS)]
    for rank, made in enumerate(parts):
        record(tmp_path, "per_pass", made, rank)
    theirs = reader.read_mode_per_pass(tmp_path)
    counted = reader.convert_global_physical_count_to_logical_count(
        theirs["global_physical_count_of_forward_pass"],
        num_layers=3,
        num_logical_experts=EXPERTS,
        physical_to_logical_map=theirs["last_physical_to_logical_map"],
    )
    assert np.array_equal(read_loads(tmp_path).loads, counted.numpy())


def test_tokens_alone_are_enough(tmp_path):
    made = passes(2, 3)
    record(tmp_path, "per_token", made)
    (file,) = tmp_path.iterdir()
    pack = torch.load(file, weights_only=True)
    for each in pack["records"]:
        del each["global_physical_count"]
    torch.save(pack, file)
    assert np.array_equal(read_loads(file, gpus=1).loads, loads(made))


def test_a_map_that_changed_between_ranks(tmp_path):
    record(tmp_path, "per_pass", passes(2, 1), 0)
    (file,) = tmp_path.iterdir()
    pack = torch.load(file, weights_only=True)
    for each in pack["records"]:
        each["rank"] = 1
    pack["last_physical_to_logical_map"] = pack["last_physical_to_logical_map"].flip(0)
    torch.save(pack, tmp_path / "another.pt")
    with pytest.raises(ValueError, match="recorded across a rebalance"):
        read_loads(tmp_path)


def test_arrays_and_maps_in_files_of_torch(tmp_path):
    x = np.random.default_rng(0).integers(1, 99, (2, 4))
    torch.save(torch.tensor(x), tmp_path / "a.pt")
    torch.save({"weight": torch.tensor(x).half()}, tmp_path / "b.pt")
    torch.save(torch.tensor(x), tmp_path / "c.pt", _use_new_zipfile_serialization=False)
    for name in "abc":
        assert np.array_equal(read_loads(tmp_path / f"{name}.pt").total, x)
    torch.save({"physical_to_logical_map": torch.tensor(TABLE)}, tmp_path / "m.pt")
    check_map(tmp_path / "m.pt", EXPERTS, GPUS, layers=3, engine="sglang", redundant=2)
    write_map(read_map(tmp_path / "m.pt"), tmp_path / "m.json", experts=4, gpus=3)
    assert np.array_equal(read_map(tmp_path / "m.json").physical, TABLE)


class Hostile:
    def __reduce__(self):
        return print, ("run",)


def test_objects_are_not_made(tmp_path, capsys):
    torch.save({"weight": Hostile()}, tmp_path / "a.pt")
    # a tensor of 8 bytes that says it has 2 ** 60 elements
    torch.save(torch.zeros(1).expand(2**30, 2**30), tmp_path / "b.pt")
    torch.save(torch.zeros(2, 2, dtype=torch.bfloat16), tmp_path / "c.pt")
    torch.save(torch.eye(2).to_sparse(), tmp_path / "d.pt")
    for name in "abcd":
        for read in (read_loads, read_map):
            with pytest.raises(ValueError):
                read(tmp_path / f"{name}.pt")
    assert "run" not in capsys.readouterr().out


def test_files_of_safetensors_that_its_own_library_wrote(tmp_path):
    safe = pytest.importorskip("safetensors.torch", reason="skipped: no safetensors")
    (tmp_path / "meta_info.json").write_text('{"num_experts": 4, "num_experts_per_token": 2}')
    x = np.random.default_rng(0).integers(1, 99, (2, 3, 2, 4))
    for rank, steps in enumerate(x):
        rows = {
            f"{t}_{3 + i}": torch.tensor(row)
            for t, s in enumerate(steps)
            for i, row in enumerate(s)
        }
        safe.save_file(rows, tmp_path / f"rank{rank}.safetensors", metadata={"format": "pt"})
    read = read_loads(tmp_path)
    assert np.array_equal(read.loads, x.sum(0)) and read.layers == (3, 4)
