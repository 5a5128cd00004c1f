"""Workers on threads: the same bits on all ranks, as in C++, through failures, save and load."""

import sys
import threading

import numpy
import pytest
from golden import GOLDEN, RANKS, digest, options_of, run, together

import sparsewire
from processes import LIMIT


@pytest.mark.parametrize(("exchange", "sparsifier", "downlink", "expected"), GOLDEN, ids=lambda word: word[:12])
def test_python_gives_the_bits_of_cpp(exchange, sparsifier, downlink, expected):
    options = options_of(exchange, sparsifier, downlink)
    ranks = sparsewire.run_on_threads(RANKS, lambda transport: run(transport, options), deadline=LIMIT)
    assert ranks[0][:2] == ranks[1][:2] == ranks[2][:2]
    assert together(map(digest, ranks)) == expected


def test_every_exchange_is_in_the_golden_file():
    assert {choice.name for choice in sparsewire.exchanges()} == {row[0] for row in GOLDEN}


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_all_ranks_end_with_the_same_bits_on_tensors_of_odd_sizes(size):
    layout = {"a": 17, "b": 1, "c": 0, "d": 501}

    def body(transport):
        worker = sparsewire.Worker(
            layout, transport=transport, scope="layer", downlink="topk:ratio=0.05", weight=1 + transport.rank, threads=2
        )
        out = numpy.empty(519, numpy.float32)
        random = numpy.random.default_rng(transport.rank)
        for _ in range(5):
            worker.step(random.standard_normal(519).astype(numpy.float32))
            worker.write_update(out)
        return out.tobytes()

    assert len(set(sparsewire.run_on_threads(size, body, deadline=LIMIT))) == 1


def test_the_mean_of_the_senders_and_a_weight_of_one_step():
    def body(transport):
        worker = sparsewire.Worker(
            3, transport=transport, sparsifier="threshold:lambda=1", exchange="allgather", average="senders"
        )
        assert worker.config["average"] == "senders"
        out = numpy.empty(3, numpy.float32)
        gradient = numpy.array([[4, 8, 0], [2, 0, 0]][transport.rank], numpy.float32)
        worker.step(gradient, weight=[3, 1][transport.rank])
        worker.write_update(out)
        return out.tolist()

    assert sparsewire.run_on_threads(2, body, deadline=30) == [[3.5, 8, 0]] * 2
    with pytest.raises(sparsewire.UsageError, match="'some' is not one of all, senders"):
        sparsewire.Worker(3, average="some")


def test_a_bad_gradient_on_one_rank_is_raised_on_all_and_the_next_step_works():
    def body(transport):
        worker = sparsewire.Worker(4, transport=transport, sparsifier="topk:k=1")
        gradient = numpy.ones(4, numpy.float32)
        bad = gradient.copy()
        bad[2] = numpy.nan if transport.rank == 1 else 1
        with pytest.raises(sparsewire.BadGradient) as caught:
            worker.step(bad, flags=1 << transport.rank)
        assert worker.stats()["flags"] == 7
        worker.step(gradient)
        return caught.value.rank, caught.value.step, caught.value.index, worker.stats()["step"]

    assert sparsewire.run_on_threads(3, body, deadline=LIMIT) == [(1, 0, 2, 1)] * 3


@pytest.mark.parametrize(
    "wrong", [numpy.ones(3, numpy.float32), numpy.ones(4), numpy.ones(8, numpy.float32)[::2], "text", None]
)
def test_a_wrong_array_on_one_rank_is_raised_there_and_told_to_the_others(wrong):
    def body(transport):
        worker = sparsewire.Worker(4, transport=transport, sparsifier="topk:k=1")
        right = numpy.ones(4, numpy.float32)
        try:
            worker.step(wrong if transport.rank == 1 else right)
        except (ValueError, TypeError, sparsewire.RankFailed) as error:
            worker.step(right)
            return type(error)

    raised = sparsewire.run_on_threads(3, body, deadline=LIMIT)
    assert raised[0] is raised[2] is sparsewire.RankFailed
    assert issubclass(raised[1], (ValueError, TypeError))


def test_a_step_in_halves_and_taken_back():
    worker = sparsewire.Worker(8, sparsifier="topk:k=2")
    worker.write_memory("", numpy.arange(8, dtype=numpy.float32))
    before = worker.memory()
    gradient = numpy.full(8, 0.5, numpy.float32)
    worker.begin_step(gradient)
    with pytest.raises(ValueError, match="has begun"):
        worker.begin_step(gradient)
    thread = threading.Thread(target=worker.finish_step)
    thread.start()
    thread.join(LIMIT)
    assert worker.update().indices.tolist() == [6, 7]
    worker.take_back_step()
    assert numpy.array_equal(worker.memory(), before)
    with pytest.raises(ValueError):
        worker.take_back_step()
    with pytest.raises(ValueError, match="no step has begun"):
        worker.finish_step()


def test_save_and_load_continue_bit_for_bit(random):
    gradients = random.standard_normal((6, 2, 300)).astype(numpy.float32)

    def body(transport):
        def make():
            return sparsewire.Worker(300, transport=transport, sparsifier="regtopk:ratio=0.05", downlink="topk:ratio=0.1")

        first = make()
        for step in gradients[:3]:
            first.step(step[transport.rank])
        states = transport.all_gather(first.save())
        second, third = make(), make()
        second.load(states)
        third.load(states[transport.rank])
        for worker in (first, second, third):
            for step in gradients[3:]:
                worker.step(step[transport.rank])
        assert first.save() == second.save() == third.save()
        with pytest.raises(sparsewire.UsageError):
            second.load(states[0][:-1])

    sparsewire.run_on_threads(2, body, deadline=LIMIT)


def test_adopt_moves_memory_by_name():
    old = sparsewire.Worker({"a": 2, "b": 3}, sparsifier="topk:k=1")
    old.step(numpy.array([1, 2, 3, 4, 9], numpy.float32))
    new = [sparsewire.Worker({"b": 3}, sparsifier="topk:k=1"), sparsewire.Worker({"a": 2}, sparsifier="topk:k=1")]
    for worker in new:
        worker.adopt([old])
    assert new[0].memory().tolist() == [3, 4, 0]
    assert new[1].memory().tolist() == [1, 2]
    assert old.memory().tolist() == [0] * 5
    with pytest.raises(ValueError):
        new[0].adopt([new[0]])


def test_memory_is_read_and_written_by_name_in_any_format():
    worker = sparsewire.Worker({"a": 2, "b": 3})
    worker.write_memory("b", numpy.array([1, 2, 3], numpy.float16))
    out = numpy.empty(3, numpy.float32)
    worker.read_memory("b", out)
    assert out.tolist() == [1, 2, 3]
    for call in (worker.read_memory, worker.write_memory):
        with pytest.raises(ValueError, match="c"):
            call("c", out)


def test_what_the_server_owes_is_added():
    def body(transport):
        worker = sparsewire.Worker(10, transport=transport, sparsifier="topk:k=2", downlink="topk:k=1")
        worker.step(numpy.arange(10, dtype=numpy.float32))
        owed = numpy.zeros(10)
        worker.add_server_memory(owed)
        with pytest.raises(ValueError):
            worker.add_server_memory(numpy.zeros(10, numpy.float32))
        return owed + worker.memory() / 2

    parts = sparsewire.run_on_threads(2, body, deadline=LIMIT)
    sent = numpy.arange(10) - sum(parts)
    assert sorted(sent[sent != 0].tolist()) in ([9.0], [8.0, 9.0])


def test_retune_keeps_the_memory_and_refuses_what_cannot_change():
    worker = sparsewire.Worker(100, sparsifier="topk:k=1")
    worker.step(numpy.arange(100, dtype=numpy.float32))
    worker.retune(sparsifier="topk:k=3", threads=2)
    worker.step(numpy.zeros(100, numpy.float32))
    assert worker.update().indices.tolist() == [96, 97, 98]
    with pytest.raises(ValueError):
        worker.retune(exchange="dense")
    with pytest.raises(TypeError, match="sparsifer"):
        worker.retune(sparsifer="topk:k=3")
    assert worker.config["sparsifier"] == "topk:k=3"


def test_workers_do_not_leak_their_transport_or_gradient():
    group = sparsewire.ThreadGroup(1)
    transport = group.at(0)
    gradient = numpy.ones(10, numpy.float32)
    before = sys.getrefcount(group), sys.getrefcount(transport), sys.getrefcount(gradient)
    for _ in range(20):
        worker = sparsewire.Worker(10, transport=transport)
        worker.step(gradient)
        del worker
    assert (sys.getrefcount(group), sys.getrefcount(transport), sys.getrefcount(gradient)) == before


@pytest.mark.parametrize("codec", ["golomb:values=bf16", "auto:values=int8", "auto", "bitmap:values=f16"])
@pytest.mark.parametrize("downlink", [None, "topk:ratio=0.05"])
def test_a_worker_alone_rounds_as_if_it_had_sent(codec, downlink, random):
    """`sharded` makes no frames then, `server` does."""
    workers = [
        sparsewire.Worker(2000, sparsifier="topk:ratio=0.1", exchange=exchange, codec=codec, downlink=downlink)
        for exchange in ("sharded", "server")
    ]
    for step in range(6):
        gradient = random.standard_normal(2000).astype(numpy.float32)
        for worker in workers:
            worker.step(gradient)
        if step == 3:
            for worker in workers:
                worker.take_back_step()
        assert workers[0].update() == workers[1].update()
        assert workers[0].memory().tobytes() == workers[1].memory().tobytes()
        assert workers[0].stats()["server_memory_norm2"] == workers[1].stats()["server_memory_norm2"]


def test_a_worker_alone_still_refuses_a_codec_that_cannot_be_used(random):
    worker = sparsewire.Worker(100, sparsifier="topk:ratio=0.1", exchange="sharded", codec="seed")
    for _ in range(2):
        with pytest.raises(sparsewire.UsageError, match="not drawn by randomk"):
            worker.step(random.standard_normal(100).astype(numpy.float32))
