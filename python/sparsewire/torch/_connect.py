"""The connections of a process group's ranks: apart from the group itself, whose traffic must not be disturbed.

Frames travel over TCP, by a thread that needs no GIL. torch.distributed's store is used once, to exchange addresses.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import struct
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

import sparsewire

# How many times this process has tried to connect the ranks of a group; the same on all of them, since that is collective.
_attempts: dict[str, int] = {}


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


def damaged(rank: int, words: bytes) -> sparsewire.TransportError:
    return sparsewire.TransportError(f"[torch] what rank {rank} said is damaged: {words!r:.80}", rank)


def parse(rank: int, words: bytes) -> dict[str, Any]:
    """What a rank said: an object in JSON. Raises TransportError, which names the rank, if it is none."""
    try:
        said = json.loads(words)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise damaged(rank, words)
    return said


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.isascii()


class _Attempt:
    """One attempt to connect: every rank says in the store where it listens, or why it cannot.

    Every call of connect() or give_up() is an attempt, on all ranks, so that the next one meets no old answers.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise sparsewire.UsageError("[torch] this process is not in the process group")
        ranks = dist.get_process_group_ranks(group) if group is not None else []
        name = "-".join(map(str, ranks)) if group is not None else "world"
        _attempts[name] = _attempts.get(name, 0) + 1
        torch_internals: Any = dist.distributed_c10d
        prefix = f"sparsewire/{name}/{_attempts[name]}"
        self.store: Any = torch_internals.PrefixStore(prefix, torch_internals._get_default_store())
        self._has_store = True

    def _store_is_gone(self, error: Exception) -> sparsewire.TransportError:
        self._has_store = False
        return sparsewire.TransportError(
            "[torch] torch's store is gone: the process of rank 0, which holds it, has probably ended; look at its output. "
            f"({error})",
            0,
        )

    def say(self, **answer: Any) -> None:
        try:
            self.store.set(str(self.rank), json.dumps(answer))
        except Exception as error:
            raise self._store_is_gone(error) from None

    def say_why_not(self, error: BaseException) -> None:
        """Rank and cause; if another rank is the cause, its."""
        if not self._has_store:
            return
        if isinstance(error, (sparsewire.RankFailed, sparsewire.TransportError)) and error.rank >= 0:
            self.say(failed=error.rank, cause=str(error))
        else:
            self.say(failed=self.rank, cause=f"{type(error).__name__}: {error}")

    def answer_of(self, other: int, end: float, deadline: float) -> dict[str, Any]:
        # Not set_timeout(): that would be the timeout of everybody who uses the store.
        left = timedelta(seconds=max(0.1, end - time.monotonic()))
        try:
            self.store.wait([str(other)], left)
            words = self.store.get(str(other))
        except Exception as error:
            if time.monotonic() < end - min(0.5, deadline / 2):  # long before the time was over
                raise self._store_is_gone(error) from None
            raise sparsewire.TransportError(
                f"[torch] rank {other} did not come within {deadline:g} s; every rank must call register(), or LocalSteps(): "
                f"{error}",
                other,
            ) from None
        answer = parse(other, words)
        if _is_text(answer.get("address")) and (other != 0 or _is_text(answer.get("token"))):
            return answer
        who, cause = answer.get("failed"), answer.get("cause")
        if type(who) is not int or not isinstance(cause, str):
            raise damaged(other, words)
        if cause.startswith("[torch] rank"):  # it was told so itself
            raise sparsewire.RankFailed(cause, who)
        raise sparsewire.RankFailed(f"[torch] rank {who} could not begin: {cause}", who)


def give_up(group: dist.ProcessGroup | None, error: BaseException) -> None:
    """Instead of connect(): tells the other ranks, which are in connect() or will be, that this one will not come."""
    try:
        if dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1:
            _Attempt(group).say_why_not(error)
    except Exception:  # the error itself is what matters; the others have their deadline
        pass


def connect(group: dist.ProcessGroup | None, deadline: float) -> sparsewire.Transport | None:
    """Connects all ranks of the group, which must all call it. None: this process is alone.

    Raises RuntimeError if torch.distributed is not initialised, RankFailed if another rank cannot come, TransportError if
    it does not come in time.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError("[torch] torch.distributed is not initialised: call init_process_group() first")
    if dist.get_world_size(group) == 1:
        return None
    attempt = _Attempt(group)
    try:
        listener = sparsewire.TcpListener(_own_address())
        token = {"token": secrets.token_hex(16)} if attempt.rank == 0 else {}  # that of rank 0 is everybody's
        attempt.say(address=listener.address, **token)
        end = time.monotonic() + deadline
        answers = [attempt.answer_of(other, end, deadline) for other in range(attempt.size)]
        addresses = [answer["address"] for answer in answers]
        return sparsewire.tcp_transport(listener, attempt.rank, addresses, answers[0]["token"].encode(), deadline)
    except BaseException as error:
        try:
            attempt.say_why_not(error)
        except sparsewire.TransportError:  # the store is gone as well
            pass
        raise
