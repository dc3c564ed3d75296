"""Two processes on gloo walk like one process with both batches; what is sharded is refused."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from trsvr.torch import TRSVR

HESSIANS = ("exact", "estimated", "gauss-newton", "identity")
pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch has no gloo backend"
)


def data():
    generator = torch.Generator().manual_seed(3)
    X = torch.randn(48, 4, dtype=torch.double, generator=generator)
    return X, X[:, :3].argmax(1)


def build(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def walk(net, parts, hessian, sizes=None):
    """Two epochs; ``parts`` are the batches that this process sees."""

    def loss_on_batch(batch):
        outputs = net(batch[0])
        return F.cross_entropy(outputs, batch[1]), outputs

    optimizer = TRSVR(net.parameters(), alpha=2.0, hessian=hessian)
    for _ in range(2):
        full = optimizer.set_reference(loss_on_batch, parts)
        for k, batch in enumerate(parts):
            optimizer.step(lambda batch=batch: loss_on_batch(batch), size=None if sizes is None else sizes[k])
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()]), float(full), optimizer.last_step.products


def halves(rank):
    """Three batches of 16 rows, of which the processes have 10 and 6."""
    X, y = data()
    pieces = []
    for begin, length, first in ((0, 16, 10), (16, 16, 10), (32, 16, 10)):
        rows = slice(begin, begin + first) if rank == 0 else slice(begin + first, begin + length)
        pieces.append((X[rows], y[rows]))
    return pieces


def worker(rank, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=timedelta(seconds=40))
    try:
        found = {}
        parts = halves(rank)
        sizes = [len(batch[0]) for batch in parts]
        for hessian in HESSIANS:
            net = DistributedDataParallel(build(seed=rank))  # which gives both the weights of the first
            found[hessian] = walk(net, parts, hessian, sizes)
        try:
            walk(build(seed=rank), parts, "identity")
        except ValueError as error:
            found["different"] = str(error)
        # Independent runs beside each other, if that is what is wanted.
        alone = TRSVR(build(seed=rank).parameters(), alpha=0.1, process_group=None)
        found["alone"] = alone._processes.count
        torch.save(found, Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_two_processes_with_ddp_walk_like_one():
    with tempfile.TemporaryDirectory() as folder:
        context = mp.start_processes(worker, (free_port(), folder), nprocs=2, join=False, start_method="spawn")
        try:
            deadline = time.monotonic() + 100
            while not context.join(timeout=1):  # raises what a process has raised
                assert time.monotonic() < deadline, "the processes did not end in time"
        finally:
            for process in context.processes:
                if process.is_alive():
                    process.kill()
        first, second = (torch.load(Path(folder) / f"{rank}.pt") for rank in range(2))
    X, y = data()
    whole = [(X[k : k + 16], y[k : k + 16]) for k in (0, 16, 32)]
    for hessian in HESSIANS:
        x, loss, products = walk(build(), whole, hessian)
        assert torch.equal(first[hessian][0], second[hessian][0]), "both processes hold the same bits"
        tolerance = 1e-6 if hessian == "estimated" else 1e-11
        assert torch.allclose(first[hessian][0], x, rtol=0, atol=tolerance)
        assert first[hessian][1] == pytest.approx(loss, rel=1e-6)
        assert first[hessian][2] == products
    assert "params differ between the processes" in first["different"]
    assert "params differ between the processes" in second["different"]
    assert first["alone"] == 1


def test_sharded_parameters_are_refused():
    from torch.distributed import fsdp
    from torch.distributed.device_mesh import init_device_mesh

    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("this PyTorch has no fully_shard")
    from torch.distributed.tensor import Shard, distribute_tensor

    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        sharded = nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Shard(0)]))
        with pytest.raises(ValueError, match=r"sharded parameter.*FSDP and tensor parallelism do not"):
            TRSVR([sharded], alpha=0.1)
        net = nn.Linear(3, 2)
        fsdp.fully_shard(net, mesh=mesh)
        with pytest.raises(ValueError, match="sharded parameter"):
            TRSVR(net.parameters(), alpha=0.1)
    finally:
        dist.destroy_process_group()
    flat = nn.Parameter(torch.ones(3))
    flat._is_flat_param = True  # the mark of the older FullyShardedDataParallel
    with pytest.raises(ValueError, match="sharded parameter"):
        TRSVR([flat], alpha=0.1)
