"""The hook on a GPU, beside the hook on the processor: the same gradients must give the same bits. All ranks share a GPU."""

import contextlib
import io

import torch
from models import DDP, digest, network, rank, small_buckets

import sparsewire
import sparsewire.torch as sw
from sparsewire.torch import _device, _passes

SIZES = {"first": 700, "bias": 30, "second": 4100, "third": 900, "last": 65}
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Constants(torch.nn.Module):
    """Parameters whose gradients are what it is given, by name; others have none in that step."""

    def __init__(self, dtype):
        super().__init__()
        for name, size in SIZES.items():
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(size, dtype=dtype)))

    def forward(self, gradients):
        return sum((getattr(self, name) * gradient).sum() for name, gradient in gradients.items())


def gradients_of(step, dtype, names=tuple(SIZES)):
    generator = torch.Generator().manual_seed(100 * step + rank())
    made = {name: torch.randn(size, generator=generator).to(dtype) for name, size in SIZES.items()}
    return {name: made[name] for name in names}


class Run:
    """A model on a device with its hook."""

    def __init__(self, device, dtype="float32", ddp=None, scaler=None, exclude=None, **options):
        self.device, self.dtype = torch.device(device), TYPES[dtype]
        self.model = DDP(Constants(self.dtype).to(self.device), **{"bucket_cap_mb": 0.001, **(ddp or {})})
        self.scaler = torch.amp.GradScaler(self.device.type, init_scale=2.0**scaler) if scaler is not None else None
        self.state = sw.register(self.model, exclude=exclude, scaler=self.scaler, **options)

    def step(self, step, names=tuple(SIZES), bad=None):
        """One pass; returns the gradients on the host. bad: a parameter with an infinity on rank 0."""
        self.model.zero_grad()
        gradients = gradients_of(step, self.dtype, names)
        if bad is not None and rank() == 0:
            gradients[bad][3] = float("inf")
        loss = self.model({name: one.to(self.device) for name, one in gradients.items()})
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        return {name: None if one.grad is None else one.grad.cpu() for name, one in self.model.module.named_parameters()}

    def memory(self):
        return self.state.memory()

    def device_text(self):
        return self.state.stats()["device"]


def bits(numbers):
    return None if numbers is None else numbers.contiguous().view(torch.uint8).numpy().tobytes()


def differences(one, other):
    assert one.keys() == other.keys()
    return [name for name in one if bits(one[name]) != bits(other[name])]


def cuda_as_host(cases):
    """For each case, in how many steps, and where, the GPU differs from the processor."""
    found = {}
    for label, options in cases.items():
        steps = options.pop("steps", 5)
        unused, bad = options.pop("unused", {}), options.pop("bad", {})
        runs = [Run(device, **options) for device in ("cpu", "cuda")]
        wrong = []
        for step in range(steps):
            names = [name for name in SIZES if name not in unused.get(str(step), [])]
            here, there = (run.step(step, names, bad.get(str(step))) for run in runs)
            wrong += [[step, "gradient", name] for name in differences(here, there)]
            wrong += [[step, "memory", name] for name in differences(*(run.memory() for run in runs))]
            if str(step) in bad and not all(one.isinf().all() for one in there.values()):
                wrong.append([step, "not all infinite"])
        if runs[0].device_text() != "host" or not runs[1].device_text().startswith("cuda:0"):
            wrong.append([run.device_text() for run in runs])
        if [run.state.stats()["host_copies"] for run in runs] != [0, 0]:
            wrong.append("copies")
        if runs[0].state.stats()["skipped"] != len(bad) or runs[1].state.stats()["skipped"] != len(bad):
            wrong.append("skipped")
        for run in runs:
            run.state.close()
        if wrong:
            found[label] = wrong[:5]
    return found


def cuda_saved(folder, options):
    """Saves on one device and goes on on the other; both must be as if they had never stopped."""
    wrong = []
    whole = Run("cpu", **options)
    for step in range(8):
        last = whole.step(step)
    for first, second in (("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")):
        run = Run(first, **options)
        for step in range(4):
            run.step(step)
        path = f"{folder}/{first}-{second}-{rank()}.pt"
        torch.save(run.state.state_dict(), path)
        run.state.close()
        run = Run(second, **options)
        run.state.load_state_dict(torch.load(path))
        for step in range(4, 8):
            found = run.step(step)
        wrong += [[first, second, "gradient", name] for name in differences(last, found)]
        wrong += [[first, second, "memory", name] for name in differences(whole.memory(), run.memory())]
        run.state.close()
    whole.state.close()
    return wrong


def cuda_retuned():
    """retune() keeps the memories where they are."""
    runs = [Run(device, sparsifier="topk:ratio=0.05") for device in ("cpu", "cuda")]
    wrong = []
    for step in range(6):
        if step == 3:
            for run in runs:
                run.state.retune("topk:ratio=0.2")
        wrong += [[step, name] for name in differences(*(run.step(step) for run in runs))]
    wrong += differences(*(run.memory() for run in runs))
    for run in runs:
        run.state.close()
    return wrong


@contextlib.contextmanager
def without_cuda():
    """As a build without CUDA."""
    before = _device.can_work_on
    _device.can_work_on = _passes.can_work_on = lambda device: False
    try:
        yield
    finally:
        _device.can_work_on = _passes.can_work_on = before


def cuda_copied(options):
    """A build without CUDA copies buckets to the host, says so, and gives the same bits."""
    with without_cuda():
        runs = [Run(device, **options) for device in ("cpu", "cuda")]
        wrong = []
        for step in range(4):
            wrong += [[step, name] for name in differences(*(run.step(step) for run in runs))]
        wrong += differences(*(run.memory() for run in runs))
        said = [runs[1].device_text(), runs[1].state.stats()["host_copies"] > 0]
        for run in runs:
            run.state.close()
    return [wrong, *said]


def cuda_trained(steps):
    """A real training on the GPU, with and without a GradScaler: digests of the weights."""
    found = {}
    device = torch.device("cuda", 0)
    for name, scaler in (("plain", None), ("scaled", torch.amp.GradScaler("cuda", init_scale=2.0**8))):
        model = small_buckets(network().to(device))
        state = sw.register(model, "topk:ratio=0.1", downlink="topk:ratio=0.1", scaler=scaler)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        generator = torch.Generator().manual_seed(rank())
        for _ in range(steps):
            optimizer.zero_grad()
            x, y = (torch.randn(8, width, generator=generator).to(device) for width in (10, 4))
            loss = torch.nn.functional.mse_loss(model(x), y)
            if scaler is None:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        found[name] = digest(model.cpu())
        found[name + " on"] = state.stats()["device"]
        state.close()
    return found


def cuda_own_sparsifier():
    """One that is written in Python sees a copy on the host."""

    class EveryFifth(sparsewire.Sparsifier):
        def choose(self, accumulated):
            return range(self.step % 5, len(accumulated), 5)

    with sparsewire.register_sparsifier("every_fifth", EveryFifth):
        return cuda_as_host({"own": {"sparsifier": "every_fifth"}})


def cuda_pickled():
    """A State that is pickled holds bytes of the host."""
    run = Run("cuda", sparsifier="topk:ratio=0.1")
    run.step(0)
    saved = run.state.state_dict()
    kept = io.BytesIO()
    torch.save(saved, kept)
    kept.seek(0)
    loaded = torch.load(kept)
    run.state.close()
    tensors = [value for one in loaded.values() for value in one.values() if isinstance(value, torch.Tensor)]
    return sorted({str(tensor.device) for tensor in tensors})


def cuda_streams(steps):
    """Backward passes on a stream of the user's, with other work on the GPU: the same bits as on the processor."""
    runs = [Run(device, sparsifier="topk:ratio=0.05", downlink="topk:ratio=0.05") for device in ("cpu", "cuda")]
    wrong, stream = [], torch.cuda.Stream()
    ballast = torch.randn(2000, 2000, device="cuda")
    for step in range(steps):
        here = runs[0].step(step)
        with torch.cuda.stream(stream):
            for _ in range(5):
                ballast = (ballast @ ballast).clamp_(-1, 1)
            there = runs[1].step(step)
        wrong += [[step, name] for name in differences(here, there)]
    wrong += differences(*(run.memory() for run in runs))
    for run in runs:
        run.state.close()
    return wrong


def cuda_failed():
    """What backward() raises if a gradient is infinite and there is no scaler; and then again."""
    run = Run("cuda", sparsifier="topk:ratio=0.05")
    run.step(0)
    said = []
    for _ in range(2):
        try:
            run.step(1, bad="second")
            said.append("no error")
        except RuntimeError as error:
            said.append(str(error))
    return [*said, type(run.state.error).__name__]


def cuda_two_models():
    """Two hooks on one GPU, whose passes interleave."""
    models = [DDP(Constants(torch.float32).cuda()) for _ in range(2)]
    states = [sw.register(model, "topk:ratio=0.05") for model in models]
    alone = Run("cpu", sparsifier="topk:ratio=0.05", ddp={"bucket_cap_mb": 25})
    wrong = []
    for step in range(4):
        gradients = {name: one.cuda() for name, one in gradients_of(step, torch.float32).items()}
        losses = [model(gradients) for model in models]
        for model, loss in zip(models, losses):
            model.zero_grad()
            loss.backward()
        expected = alone.step(step)
        for model in models:
            found = {name: one.grad.cpu() for name, one in model.module.named_parameters()}
            wrong += [[step, name] for name in differences(expected, found)]
    for state in [*states, alone.state]:
        state.close()
    return wrong


def local_steps_as_host(devices, cases):
    """For each case, what of weights, start and memory differs after LocalSteps on one device and on the other."""
    found = {}
    for label, options in cases.items():
        dtype, steps = TYPES[options.pop("dtype", "float32")], 14
        runs = []
        for device in devices:
            torch.manual_seed(4)
            model = torch.nn.Sequential(torch.nn.Linear(70, 60), torch.nn.Linear(60, 90)).to(dtype).to(device)
            outer = sw.LocalSteps(model, None, every=4, **{"min_compress_size": 70, "sparsifier": "topk:k=9,chunk=100", **options})
            for step in range(steps):
                generator = torch.Generator().manual_seed(100 * step + rank())
                with torch.no_grad():
                    for p in model.parameters():
                        p.sub_((0.01 * torch.randn(p.shape, generator=generator)).to(dtype).to(device))
                outer.step()
                if step == 9:  # in mid-round, perhaps with an exchange under way
                    outer.load_state_dict(outer.state_dict()) if outer._under_way is None else outer.state_dict()
            numbers = {name: p.detach().cpu().clone() for name, p in model.named_parameters()}
            numbers.update({f"start of {i}": fragment.start.cpu().clone() for i, fragment in enumerate(outer._fragments)})
            numbers.update({f"memory of {name}": one for name, one in outer.memory().items()})
            with outer.start_weights():
                numbers["shown"] = torch.cat([p.detach().flatten().cpu() for p in model.parameters()])
            outer.close()
            numbers.update({f"end of {name}": p.detach().cpu() for name, p in model.named_parameters()})
            runs.append(numbers)
        wrong = differences(*runs)
        if wrong:
            found[label] = wrong
    return found
