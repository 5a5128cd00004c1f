"""The hook's side, on autograd's thread: buckets of DDP become jobs."""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed as dist

import sparsewire

from ._job import Job
from ._parameters import Parameters

_TYPES = (torch.float32, torch.bfloat16, torch.float16)


class _Content:
    """The parameters of a bucket, and what is made once for it."""

    def __init__(self, names: tuple[str, ...], sizes: tuple[int, ...]) -> None:
        self.names, self.sizes = names, sizes
        self.all_names = frozenset(names)
        self.total = sum(sizes)
        self._event: Optional[torch.cuda.Event] = None

    def record(self, device: torch.device) -> torch.cuda.Event:
        """The gradient is there when the current stream has come to this point. The pass before has ended by now."""
        if self._event is None:
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(device))
        return self._event


class Buckets:
    """Says what is in a bucket, and which one is the first and the last of a backward pass."""

    def __init__(self, parameters: Parameters, scaler: Any) -> None:
        self._parameters = parameters
        self._scaler = scaler
        self._scale = 1.0
        self._seen: set[str] = set()  # in this backward pass
        self._contents: dict[tuple[int, ...], _Content] = {}  # by the ids of parameters; these are kept alive

    @property
    def is_in_pass(self) -> bool:
        return bool(self._seen)

    def make_job(self, bucket: Any) -> Job:
        """Raises what makes a bucket impossible to exchange."""
        if not isinstance(bucket, dist.GradBucket):  # type: ignore[attr-defined]
            raise TypeError(
                f"[torch] the hook got a {type(bucket).__name__} instead of a bucket: torch.compile's Python reducer is "
                "not supported; set torch._dynamo.config.optimize_ddp = True or compile the inner module"
            )
        model = self._parameters.model()
        if model is not None and getattr(getattr(model, "_join_config", None), "enable", False):
            raise RuntimeError("[torch] model.join() is not supported: give all ranks equally many batches")
        buffer = bucket.buffer()
        if buffer.is_sparse or buffer.layout != torch.strided:
            raise TypeError("[torch] sparse gradients are not supported: use Embedding(sparse=False)")
        if buffer.dtype not in _TYPES:
            raise TypeError(f"[torch] gradients of {buffer.dtype} are not supported: float32, bfloat16 or float16")
        content = self._content(bucket.parameters())
        if content.total != buffer.numel():
            raise RuntimeError("[torch] the bucket's size is not that of its parameters")
        event = content.record(buffer.device) if buffer.is_cuda else None
        job = Job(buffer, content.names, content.sizes, event)
        self._place_in_pass(job, content, bucket)
        if self._scaler is not None:
            if not self._parameters.is_bound:
                raise sparsewire.UsageError("[torch] with a scaler the State must know the model: state.bind(model)")
            if job.first:
                self._scale = float(self._scaler.get_scale())
            job.scale = self._scale
        return job

    def _content(self, parameters: list[torch.Tensor]) -> _Content:
        key = tuple(map(id, parameters))
        found = self._contents.get(key)
        if found is None:
            names = tuple(self._parameters.name(parameter) for parameter in parameters)
            sizes = tuple(parameter.numel() for parameter in parameters)
            found = self._contents[key] = _Content(names, sizes)
        return found

    def _place_in_pass(self, job: Job, content: _Content, bucket: Any) -> None:
        known = self._parameters
        if known.all is None and self._seen & content.all_names:  # a new pass, without the end of the last one seen
            known.all = frozenset(self._seen)
            self._seen = set()
        job.first = not self._seen
        self._seen |= content.all_names
        job.last = self._seen >= known.all if known.all is not None else bucket.is_last()
        if job.last:
            if known.all is None:
                known.all = frozenset(self._seen)
            self._seen = set()
