"""The connections of a process group's ranks: apart from the group itself, whose traffic must not be disturbed.

Frames travel over TCP, by a thread that needs no GIL. torch.distributed's store is used once, to exchange addresses.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import struct
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

import sparsewire

# How many times this process has connected the ranks of a group; the same on all of them, since connecting is collective.
_connected: dict[str, int] = {}


def _address_of_interface(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            answer = fcntl.ioctl(asking.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
        except OSError as error:
            raise sparsewire.UsageError(f"[torch] interface {name!r} has no IPv4 address: {error}") from None
    return socket.inet_ntoa(answer[20:24])


def _own_address() -> str:
    """Where the other ranks reach this one.

    SPARSEWIRE_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names the interface; otherwise it is the one that leads to MASTER_ADDR.
    """
    interface = os.environ.get("SPARSEWIRE_SOCKET_IFNAME") or os.environ.get("GLOO_SOCKET_IFNAME")
    if interface:
        return _address_of_interface(interface.split(",")[0])
    master = os.environ.get("MASTER_ADDR")
    if master:
        return sparsewire.local_address_towards(master, int(os.environ.get("MASTER_PORT", "29500")))
    return sparsewire.local_address_towards(socket.gethostname(), 29500)


def connect(group: dist.ProcessGroup | None, deadline: float) -> sparsewire.Transport | None:
    """Connects all ranks of the group, which must all call it. None: this process is alone.

    Raises RuntimeError if torch.distributed is not initialised, TransportError if a rank does not come in time.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError("[torch] torch.distributed is not initialised: call init_process_group() first")
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise sparsewire.UsageError("[torch] this process is not in the process group")
    if size == 1:
        return None
    default: Any = dist.distributed_c10d
    ranks = dist.get_process_group_ranks(group) if group is not None else list(range(size))
    name = "-".join(map(str, ranks)) if group is not None else "world"
    count = _connected[name] = _connected.get(name, 0) + 1
    store: Any = default.PrefixStore(f"sparsewire/{name}/{count}", default._get_default_store())
    try:
        if rank == 0:
            store.set("token", secrets.token_hex(16))
        listener = sparsewire.TcpListener(_own_address())
        store.set(str(rank), listener.address)
        end = time.monotonic() + deadline
        addresses = []
        for other in range(size):
            # Not set_timeout(): that would be the timeout of everybody who uses the store.
            left = timedelta(seconds=max(0.1, end - time.monotonic()))
            try:
                store.wait([str(other)], left)
            except Exception as error:
                raise sparsewire.TransportError(
                    f"[torch] rank {other} did not come within {deadline:g} s; every rank must register the hook: {error}",
                    other,
                ) from None
            addresses.append(store.get(str(other)).decode())
        return sparsewire.tcp_transport(listener, rank, addresses, store.get("token"), deadline)
    except BaseException:
        _connected[name] = count - 1  # all ranks can try again
        store.delete_key(str(rank))
        raise
