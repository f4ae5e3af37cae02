"""Files that lie, break or want too much; and valid ones, to be spoiled."""

import json
import struct

import numpy as np
from hypothesis import strategies as st


def npy_file(shape, kind="<i8", data=b""):
    "A file in NumPy's format that says this, whether it is true or not."
    head = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    head += b" " * (63 - (len(head) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


HOSTILE = {
    "empty": b"",
    "blank": b" \n\n ",
    "bytes": bytes(range(256)),
    "header promises": npy_file((10**12,)),
    "header is negative": npy_file((-1, 4), data=b"\x00" * 8),
    "header of objects": npy_file((1,), "|O", b"\x80\x04N."),
    "header of texts": npy_file((1,), "<U1", b"\x00" * 4),
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


def safetensors_file(arrays, kinds=None):
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


@st.composite
def spoiled(draw, good):
    "One of some valid files (bytes) with one to four bytes set, cut, dropped or doubled."
    raw = bytearray(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw) - 1))
        how = draw(st.sampled_from(["set", "cut", "drop", "double"]))
        if how == "set":
            raw[at] = draw(st.integers(0, 255))
        elif how == "cut" and at > 0:
            del raw[at:]
        elif how == "drop":
            del raw[at]
        else:
            raw[at:at] = raw[at : at + 20]
        raw = raw or bytearray(b" ")
    return bytes(raw)


# anything, behind the first bytes of some format
STARTS = st.sampled_from([b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"{", b"[[", b"\x80"])
RANDOM = st.tuples(STARTS, st.binary(max_size=300)).map(b"".join)

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
