"""Sparsifiers written in Python."""

import gc
import subprocess
import sys
import threading
import traceback
import weakref

import numpy
import pytest

import sparsewire
from processes import LIMIT


class Largest(sparsewire.Sparsifier):
    """The k largest magnitudes; the lower index wins a tie."""

    entries_vary = False

    def __init__(self, context, *, ratio: float = 0.01):
        super().__init__(context)
        self.k = min(context.dim, max(1, int(ratio * context.dim + 0.5)))

    def expected_entries(self):
        return self.k

    def choose(self, accumulated):
        order = numpy.argsort(-numpy.abs(accumulated), kind="stable")
        return numpy.sort(order[: self.k])


class Counting(Largest):
    """Sends one entry more in each step, and remembers what it saw."""

    def __init__(self, context):
        super().__init__(context, ratio=0.01)
        self.seen = numpy.zeros(3, numpy.float32)

    def choose(self, accumulated):
        self.k += 1
        self.seen += accumulated[:3]
        return super().choose(accumulated)

    def observe(self, indices, values, update):
        assert indices.dtype == numpy.uint32 and len(indices) == len(values) == len(update)
        self.seen[0] += update.sum()

    def save(self):
        return {"k": self.k, "seen": self.seen, "text": "ä", "nested": [1, {"x": numpy.float32(2)}]}

    def load(self, state):
        assert state["text"] == "ä" and state["nested"] == [1, {"x": 2}]
        self.k, self.seen = state["k"], state["seen"]


def sifts(spec, gradients, **options):
    sifter = sparsewire.Sifter(spec, gradients.shape[1], **options)
    return [(v.indices.tobytes(), v.values.tobytes()) for v in map(sifter.sift, gradients)], sifter.memory().tobytes()


@pytest.mark.parametrize("feedback", ["ef", "none", "ef:decay=0.9", "momentum:m=0.9"])
@pytest.mark.parametrize("dim", [1, 7, 1000])
def test_in_python_topk_gives_the_bits_of_the_built_in_one(register, random, feedback, dim):
    register("largest", Largest)
    gradients = random.standard_normal((10, dim)).astype(numpy.float32).round(1)  # with ties
    expected = sifts("topk:ratio=0.05", gradients, feedback=feedback)
    assert sifts("largest:ratio=0.05", gradients, feedback=feedback) == expected


@pytest.mark.parametrize("exchange", [choice.name for choice in sparsewire.exchanges()])
def test_in_a_worker_too(register, random, exchange):
    register("largest", Largest)
    gradients = random.standard_normal((6, 3, 500)).astype(numpy.float32)

    def run(spec):
        downlink = spec if exchange in ("server", "sharded") else ""

        def body(transport):
            worker = sparsewire.Worker(
                500, transport=transport, sparsifier=spec, exchange=exchange, downlink=downlink, codec="auto:values=bf16"
            )
            updates = []
            for step in gradients:
                worker.step(step[transport.rank])
                updates.append(worker.update().values.tobytes())
            return updates, worker.memory().tobytes()

        return sparsewire.run_on_threads(3, body, deadline=LIMIT)

    assert run("largest:ratio=0.04") == run("topk:ratio=0.04")


def test_the_state_is_saved_loaded_and_rewound(register, random):
    register("counting", Counting)
    gradients = random.standard_normal((8, 50)).astype(numpy.float32)
    sifter = sparsewire.Sifter("counting", 50)
    assert sifter.traits() == {"observes": True, "entries_vary": False, "remembers": True}
    for gradient in gradients[:3]:
        sent = sifter.sift(gradient)
        sifter.observe(sent, sent.values)
    state = sifter.save()

    sent = sifter.sift(gradients[3])
    assert len(sent) == 5
    sifter.observe(sent, sent.values)
    assert sifter.save() != state
    sifter.undo(gradients[3], sent)
    numpy.testing.assert_allclose(sifter.memory(), sparsewire_memory(state), atol=1e-5)

    other = sparsewire.Sifter("counting", 50)
    other.load(state)
    assert other.save() == state
    assert len(other.sift(gradients[3])) == 5

    bad = gradients[4].copy()
    bad[0] = numpy.inf
    state = other.save()
    with pytest.raises(sparsewire.BadGradient):
        other.sift(bad)
    assert len(other.sift(gradients[5])) == 6


def sparsewire_memory(state):
    sifter = sparsewire.Sifter("counting", 50)
    sifter.load(state)
    return sifter.memory()


def test_bytes_are_a_state(register):
    class Bytes(Largest):
        state = b""

        def choose(self, accumulated):
            self.state += b"\0x"
            return super().choose(accumulated)

        def save(self):
            return self.state

        def load(self, state):
            self.state = state

    register("bytes_state", Bytes)
    first, second = sparsewire.Sifter("bytes_state", 5), sparsewire.Sifter("bytes_state", 5)
    first.sift(numpy.ones(5, numpy.float32))
    second.load(first.save())
    assert second.save() == first.save()
    with pytest.raises(ValueError):
        second.load(first.save()[:-1])


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([2, 1], "must ascend"),
        ([1, 1], "must ascend"),
        ([0, 9], "chose index 9"),
        ([-1], "index -1"),
        ([0.5], "integers"),
        ([[0]], "one dimension"),
        ([True, False], "integers"),
        ("text", "one dimension"),
        (None, "one dimension"),
    ],
)
def test_a_wrong_choice_is_a_clear_error_and_changes_nothing(register, chosen, message):
    class Wrong(sparsewire.Sparsifier):
        def choose(self, accumulated):
            return chosen

    register("wrong", Wrong)
    sifter = sparsewire.Sifter("wrong", 4)
    with pytest.raises(sparsewire.UsageError, match=rf"\[wrong\].*{message}"):
        sifter.sift(numpy.ones(4, numpy.float32))
    assert sifter.memory().tolist() == [0] * 4
    assert sifter.step == 0


@pytest.mark.parametrize("chosen", [[], (), range(2), numpy.array([0, 3], numpy.int8), numpy.arange(4)[::2]])
def test_any_integers_are_a_choice(register, chosen):
    class Fixed(sparsewire.Sparsifier):
        def choose(self, accumulated):
            return chosen

    register("fixed", Fixed)
    sent = sparsewire.Sifter("fixed", 4).sift(numpy.ones(4, numpy.float32))
    assert sent.indices.tolist() == list(chosen)


def test_the_accumulated_vector_cannot_be_written(register):
    class Writes(sparsewire.Sparsifier):
        def choose(self, accumulated):
            accumulated[0] = 1

    class MakesWritable(sparsewire.Sparsifier):
        def choose(self, accumulated):
            accumulated.flags.writeable = True

    register("writes", Writes)
    register("makes_writable", MakesWritable)
    for name, words in (("writes", "read-only"), ("makes_writable", "WRITEABLE")):
        with pytest.raises(ValueError, match=words):
            sparsewire.Sifter(name, 4).sift(numpy.ones(4, numpy.float32))


def test_the_accumulated_vector_can_be_kept(register):
    """What a sparsifier keeps stays as it was, through later steps and after the Sifter is gone."""
    kept = []

    class Keeps(sparsewire.Sparsifier):
        def choose(self, accumulated):
            kept.append(accumulated[1:] if self.step % 2 else accumulated)
            return [0]

    register("keeps", Keeps)
    size = 1_000_000  # memory of this size is returned to the system when it is freed
    sifter = sparsewire.Sifter("keeps", size)
    for _ in range(4):
        sifter.sift(numpy.ones(size, numpy.float32))
    del sifter
    gc.collect()
    assert [one[-1] for one in kept] == [1, 2, 3, 4]
    assert [len(one) for one in kept] == [size, size - 1] * 2


@pytest.mark.parametrize("kind", ["Sifter", "Worker"])
def test_a_traceback_shows_the_accumulated_vector_after_the_end(register, kind):
    class Fails(sparsewire.Sparsifier):
        def choose(self, accumulated):
            raise LookupError("no")

    register("fails", Fails)
    size = 1_000_000
    caught = []
    made = sparsewire.Sifter("fails", size) if kind == "Sifter" else sparsewire.Worker(size, sparsifier="fails")
    try:
        (made.sift if kind == "Sifter" else made.step)(numpy.ones(size, numpy.float32))
    except LookupError as error:
        caught.append(error)
    del made
    gc.collect()
    frame = caught[0].__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    assert frame.tb_frame.f_locals["accumulated"].sum() == size


def test_an_exception_keeps_its_traceback_and_the_other_ranks_are_told(register):
    class Fails(Largest):
        def choose(self, accumulated):
            if self.context.rank == 1 and self.step == 1:
                return 1 // 0
            return super().choose(accumulated)

    register("fails", Fails)

    def body(transport):
        worker = sparsewire.Worker(10, transport=transport, sparsifier="fails:ratio=0.1")
        gradient = numpy.arange(10, dtype=numpy.float32)
        worker.step(gradient)
        before = worker.memory()
        try:
            worker.step(gradient)
        except (ZeroDivisionError, sparsewire.RankFailed) as error:
            assert numpy.array_equal(worker.memory(), before)
            lines = traceback.format_exception(type(error), error, error.__traceback__)
            return type(error), str(error), "1 // 0" in "".join(lines)

    results = sparsewire.run_on_threads(3, body, deadline=LIMIT)
    assert results[1][0] is ZeroDivisionError
    assert results[1][2]
    for rank in (0, 2):
        assert results[rank][0] is sparsewire.RankFailed
        assert "rank 1" in results[rank][1]
        assert "ZeroDivisionError: integer division or modulo by zero" in results[rank][1]


def test_an_exception_keeps_nothing_alive(register):
    class Fails(sparsewire.Sparsifier):
        def choose(self, accumulated):
            raise RuntimeError("no")

    register("fails", Fails)

    class Marker:
        pass

    def run():
        marker = Marker()
        worker = sparsewire.Worker(4, sparsifier="fails")
        with pytest.raises(RuntimeError, match="no"):
            worker.step(numpy.ones(4, numpy.float32))
        return weakref.ref(marker)

    marker = run()
    gc.collect()
    assert marker() is None


def test_the_spec_is_read_by_the_types_of_the_parameters(register):
    made = []

    class Keys(Largest):
        def __init__(self, context, *, size: "float | None" = None, count=3, deep: bool = False, mode="a"):
            super().__init__(context)
            made.append((size, count, deep, mode, context))

    register("keys", Keys)
    sparsewire.Sifter("keys:size=1.5,count=4,deep=true,mode=b", {"a": 2, "b": 1}, seed=9, rank=1, ranks=2)
    sparsewire.Sifter("keys", 3)
    assert made[0][:4] == (1.5, 4, True, "b")
    assert made[1][:4] == (None, 3, False, "a")
    context = made[0][4]
    assert (context.layout, context.dim, context.seed, context.rank) == ([("a", 2), ("b", 1)], 3, 9, 1)
    with pytest.raises(sparsewire.UsageError, match="unknown key 'sice'.*size, count, deep, mode"):
        sparsewire.Sifter("keys:sice=1", 3)
    with pytest.raises(sparsewire.UsageError, match="count"):
        sparsewire.Sifter("keys:count=1.5", 3)


def test_an_exception_of_the_constructor_comes_through(register):
    class Refuses(sparsewire.Sparsifier):
        def __init__(self, context, *, ratio: float):
            raise KeyError("not this way")

    register("refuses", Refuses)
    with pytest.raises(KeyError, match="not this way"):
        sparsewire.Sifter("refuses:ratio=1", 3)
    register("nothing", lambda context: None)
    with pytest.raises(sparsewire.UsageError, match="no sparsewire.Sparsifier"):
        sparsewire.Sifter("nothing", 3)


def test_names_are_registered_once_and_free_again():
    with sparsewire.register_sparsifier("mine", Largest, {"ratio": float}, summary="as topk", example="mine:ratio=0.1"):
        assert sparsewire.sparsifiers()[-1] == ("mine", "as topk", "mine:ratio=0.1")
        sifter = sparsewire.Sifter("mine:ratio=0.5", 2)
        for name in ("mine", "topk", "no name"):
            with pytest.raises(sparsewire.UsageError):
                sparsewire.register_sparsifier(name, Largest)
    with pytest.raises(sparsewire.UsageError, match="mine"):
        sparsewire.Sifter("mine", 2)
    assert len(sifter.sift(numpy.ones(2, numpy.float32))) == 1  # what was made before goes on
    with pytest.raises(sparsewire.UsageError):
        sparsewire.unregister_sparsifier("mine")


def test_a_sparsifier_is_released_with_its_sifter(register):
    made = []

    class Watched(Largest):
        def __init__(self, context):
            super().__init__(context)
            made.append(weakref.ref(self))

    register("watched", Watched)
    sifter = sparsewire.Sifter("watched", 4)
    sifter.sift(numpy.ones(4, numpy.float32))
    assert made[0]() is not None
    del sifter
    assert made[0]() is None


def test_two_callers_at_a_time_are_refused(register):
    called, go_on = threading.Event(), threading.Event()

    class Waits(sparsewire.Sparsifier):
        def choose(self, accumulated):
            called.set()
            go_on.wait(LIMIT)
            return []

    register("waits", Waits)
    sifter = sparsewire.Sifter("waits", 4)
    gradient = numpy.ones(4, numpy.float32)
    thread = threading.Thread(target=sifter.sift, args=(gradient,))
    thread.start()
    called.wait(LIMIT)
    for call in (lambda: sifter.sift(gradient), sifter.memory, sifter.save):
        with pytest.raises(sparsewire.UsageError, match="one caller at a time"):
            call()
    go_on.set()
    thread.join(LIMIT)
    assert sifter.memory().tolist() == [1] * 4


def test_the_interpreter_ends_in_peace_with_everything_still_there():
    code = """
import numpy, sparsewire
class Mine(sparsewire.Sparsifier):
    def choose(self, accumulated): return [0]
sparsewire.register_sparsifier("mine", Mine)
sifter = sparsewire.Sifter("mine", 3)
worker = sparsewire.Worker(3, sparsifier="mine", threads=2)
vector = sifter.sift(numpy.ones(3, numpy.float32))
worker.step(numpy.ones(3, numpy.float32))
builtins = __import__("builtins"); builtins.kept = (sifter, worker, vector.values)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=LIMIT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
