"""The engines' own modules, with everything around them left empty.

``SERVING_OR_ENGINES`` names the folder that `fetch` has filled. Only the parts that place experts
are there. What they import from the rest of their engine (configuration, logging, platforms) is
an empty module here, whose names are whatever is asked for.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
import typing
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

FOLDER = os.environ.get("SERVING_OR_ENGINES", "")
ROOTS = {"vllm", "sglang", "vllm_ascend", "torch_npu", "ms_service_metric"}


class Empty(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = mock.MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Empty modules for what the engines import and nobody has unpacked."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ROOTS:
            return None
        own = Path(FOLDER, *name.split("."))
        if own.with_suffix(".py").is_file() or (own / "__init__.py").is_file():
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = Empty(spec.name)
        module.__path__ = [str(Path(FOLDER, *spec.name.split(".")))]
        return module

    def exec_module(self, module):
        pass


def ready():
    """Whether the engines are here; then their modules can be imported."""
    if not FOLDER or not Path(FOLDER).is_dir():
        return False
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
        sys.path.insert(0, FOLDER)
        vllm = importlib.import_module("vllm.config.parallel")
        vllm.EPLBPolicyOption = typing.Literal["default"]
        importlib.import_module("vllm.utils.torch_utils").PIN_MEMORY = False
        importlib.import_module("vllm.utils.gpu_sync_debug").gpu_sync_allowed = nullcontext
        importlib.import_module("vllm.distributed.parallel_state").is_local_first_rank = bool
        logs = importlib.import_module("vllm.logger")
        logs.errors = []
        logs.logger = types.SimpleNamespace(
            error=lambda text, *a: logs.errors.append(text % a if a else text),
            **{k: lambda *a, **b: None for k in ("info", "debug", "warning", "warning_once")},
        )
    return True


def load(name):
    """A module of an engine."""
    assert ready()
    return importlib.import_module(name)


def sglang(experts, spares, gpus, layers, dispatch="static", nodes=1, backend="deepep"):
    """SGLang's loader of maps, configured: a function of the option's text and the rank."""
    context = load("sglang.srt.runtime_context")
    moe = types.SimpleNamespace(
        ep_num_redundant_experts=spares,
        ep_dispatch_algorithm=dispatch,
        moe_a2a_backend=backend,
        ep_join_mode="none",
        eplb_algorithm="auto",
        init_expert_location=None,
    )
    parallel = types.SimpleNamespace(ep_size=gpus, nnodes=nodes, elastic_ep_initial_size=None)
    context.get_exec = lambda: types.SimpleNamespace(moe=moe)
    context.get_parallel = lambda: parallel
    context.get_device = lambda: types.SimpleNamespace(device="cpu")
    elastic = load("sglang.srt.elastic_ep.elastic_ep")
    elastic.elastic_expanded_world_enabled = lambda: False
    location = load("sglang.srt.eplb.expert_location")
    for name in ("get_exec", "get_parallel", "get_device"):
        setattr(location, name, getattr(context, name))
    sizes = location.ModelConfigForExpertLocation(layers, experts, 1)
    model = types.SimpleNamespace(get_model_config_for_expert_location=lambda config: sizes)
    load("sglang.srt.model_loader").get_model_architecture = lambda config: (model, None)

    def read(option, rank):
        moe.init_expert_location = str(option)
        config = types.SimpleNamespace(hf_config=None)
        return location.compute_initial_expert_location_metadata(config, moe_ep_rank=rank)

    return read


def ascend(path, experts, gpus, layer, rank=0, redundant=0):
    """vLLM-Ascend's reader of maps: global map, local map, logical to physical, redundant."""
    import torch

    torch.Tensor.npu = lambda self: self
    utils = load("vllm_ascend.eplb.core.eplb_utils")
    config = types.SimpleNamespace(
        expert_map_path=str(path), dynamic_eplb=True, num_redundant_experts=redundant
    )
    moe = types.SimpleNamespace(num_experts=experts, ep_size=gpus, ep_rank=rank)
    return utils.init_eplb_config(config, layer, moe)


def ascend_worker():
    """vLLM-Ascend's check of a new placement, and its turning of maps, without a process."""
    import torch

    torch.npu = types.SimpleNamespace(device_count=lambda: 16)
    worker = load("vllm_ascend.eplb.core.eplb_worker")
    return worker.EplbWorker.__new__(worker.EplbWorker)


def recorder(table, experts, gpus, rank, mode, folder, buffer=8):
    """SGLang's recorder of one rank: a function that records a pass, and one that dumps.

    A pass is a list of arrays (tokens, k) of physical experts, one a layer; None is a dense layer.
    """
    import torch

    context = load("sglang.srt.runtime_context")
    moe = types.SimpleNamespace(
        expert_distribution_recorder_mode=mode,
        expert_distribution_recorder_buffer_size=buffer,
        moe_a2a_backend="none",
        deepep_mode="normal",
        eplb_min_rebalancing_utilization_threshold=1.0,
    )
    overlap = types.SimpleNamespace(enable_two_batch_overlap=False)
    context.get_exec = lambda: types.SimpleNamespace(moe=moe, overlap=overlap)
    context.get_schedule = lambda: types.SimpleNamespace(chunked_prefill_size=64)
    context.get_device = lambda: types.SimpleNamespace(device="cpu")
    context.get_platform = lambda: types.SimpleNamespace(is_hip=False)
    context.reports_expert_balancedness = lambda: False
    utils = load("sglang.srt.utils")
    utils.Withable, utils.get_device = Withable, lambda: "cpu"
    distribution = load("sglang.srt.eplb.expert_distribution")
    for module in (context, utils):
        for name in vars(module):
            if hasattr(distribution, name) and not name.startswith("__"):
                setattr(distribution, name, getattr(module, name))
    distribution.get_device_namespace = context.get_device
    distribution.envs.SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR.get = lambda: str(folder)
    distribution.time.sleep(0.001)
    torch.get_device_module = lambda: types.SimpleNamespace(
        is_current_stream_capturing=lambda: False, empty_cache=lambda: None
    )
    torch.distributed.all_reduce = lambda tensor, op=None: None
    slots = torch.as_tensor(table)
    where = types.SimpleNamespace(
        num_layers=slots.shape[0],
        num_physical_experts=slots.shape[1],
        num_local_physical_experts=slots.shape[1] // gpus,
        num_logical_experts=experts,
        physical_to_logical_map=slots,
        ep_size=gpus,
    )
    made = distribution.ExpertDistributionRecorder.init_new(where, rank)
    made.start_record()

    def take(at, layers):
        tokens = next(len(ids) for ids in layers if ids is not None)
        batch = types.SimpleNamespace(
            input_ids=torch.arange(tokens),
            positions=torch.arange(tokens),
            extend_seq_lens_cpu=[tokens],
            forward_mode=types.SimpleNamespace(value=1),
        )
        with made.with_forward_pass(at, batch):
            for layer, ids in enumerate(layers):
                if ids is not None:
                    with made.with_current_layer(layer):
                        made.on_select_experts(topk_ids=torch.as_tensor(ids))

    return take, made.dump_record


class Withable:
    """SGLang's holder of a value within a with statement."""

    def __init__(self):
        self.value = None

    def with_value(self, value):
        @contextmanager
        def held():
            self.value, before = value, self.value
            try:
                yield
            finally:
                self.value = before

        return held()
