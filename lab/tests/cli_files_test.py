#!/usr/bin/env python3
"""Files of the program from outside: broken ones, and what is left when a command is interrupted.

    cli_files_test.py PROGRAM [SUITE]...     PROGRAM: the sparsewire to test; SUITE: some of the classes below
"""

import math
import os
import select
import signal
import stat
import subprocess
import unittest

import processes
from cli_case import Case, PROGRAM, TOPK, gaussians, npy, raw_frame


class BadFiles(Case):
    """Each is one line, exit code 2, and leaves everything as it was."""

    def bad_npy(self):
        whole = npy(gaussians(8))
        for size in (0, 1, 5, 6, 7, 8, 9, 10, 50, 127, 128, 129, 131, len(whole) - 1):
            yield f"cut to {size}", whole[:size], "cut short" if size else "not a .npy file"
        yield "too long", whole + b"\0", "more than"
        yield "foreign", b"PK\x03\x04" + whole, "not a .npy file"
        yield "double", npy(gaussians(8), descr="<f8"), "'<f8'"
        yield "integers", npy([1] * 8, descr="<i4"), "'<i4'"
        yield "big-endian", npy(gaussians(8), descr=">f4"), "'>f4'"
        yield "Fortran", npy(gaussians(8), (2, 4), order="True"), "Fortran"
        yield "huge", npy([], (1 << 62,)), "more numbers"
        yield "large", npy([], (1 << 40,)), "cut short"

    def test_as_the_gradient(self):
        self.put("mem.npy", npy(gaussians(8)))
        self.put("out.swf", b"an older frame")
        for name, content, why in self.bad_npy():
            with self.subTest(name):
                self.put("in.npy", content)
                self.assertIn("'in.npy'", self.refuses("compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf", says=why))

    def test_as_the_memory(self):
        self.put("in.npy", npy(gaussians(8)))
        half = ("half", npy([1] * 8, descr="<f2"), "float16")
        other = ("other size", npy([1] * 9), "9 entries")
        one = ("one entry", npy([1]), "has 1 entry, the gradient 8")
        nan = ("nan", npy([0, 1, math.nan] + [0] * 5), "nan at index 2")
        infinite = ("infinite", npy([-math.inf] + [0] * 7), "-inf at index 0")
        for name, content, why in [*self.bad_npy(), half, other, one, nan, infinite]:
            with self.subTest(name):
                self.put("mem.npy", content)
                self.assertIn("'mem.npy'", self.refuses("compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf", says=why))

    def test_with_numbers_that_are_not_finite(self):
        self.put("mem.npy", npy([3e38] * 4))
        for numbers in ([0, math.nan, 0, 0], [0, 0, 0, math.inf], [0, 0, 3e38, 0]):
            for sparsifier in ("topk:k=1", "dense", "randomk:k=2", "threshold:lambda=1"):
                self.put("in.npy", npy(numbers))
                self.refuses("compress", "in.npy", "--sparsifier", sparsifier, "--memory", "mem.npy", "-o", "out.swf", says="'in.npy'")

    def test_as_a_frame(self):
        good = raw_frame(10, [(2, 1.5), (7, -3)])
        self.put("good.swf", good)
        self.put("out.npy", b"older")
        self.run_ok("inspect", "good.swf")
        broken = [good[:size] for size in range(len(good))]
        broken += [good[:i] + bytes([good[i] ^ 4]) + good[i + 1 :] for i in range(len(good))]
        broken += [good + b"\0", npy(gaussians(8)), raw_frame(2, [(2, 1.5)]), raw_frame(10, [(7, 1), (2, 1)])]
        for i, content in enumerate(broken):
            self.put("bad.swf", content)
            if i % 7 == 0:
                self.refuses("inspect", "bad.swf", says="cannot read 'bad.swf': ")
            self.refuses("decompress", "bad.swf", "-o", "out.npy", says="cannot read 'bad.swf': ")

    def test_that_are_missing_or_not_files(self):
        self.put("in.npy", npy(gaussians(8)))
        self.put("mem.npy", npy(gaussians(8)))
        (self.folder / "sub").mkdir()
        (self.folder / "loop").symlink_to("loop")
        self.refuses("compress", "no.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf", says="cannot read 'no.npy': No such file")
        self.refuses("compress", "sub", *TOPK, "--memory", "mem.npy", "-o", "out.swf", says="cannot read 'sub': Is a directory")
        self.refuses("compress", "in.npy", *TOPK, "--memory", "sub", "-o", "out.swf", says="--memory 'sub' is not a file")
        self.refuses("compress", "in.npy", *TOPK, "--state", "/dev/null", "-o", "out.swf", says="--state '/dev/null' is not a file")
        self.refuses("compress", "in.npy", *TOPK, "--memory", "loop", "-o", "out.swf", says="'loop'")
        for command in (["inspect"], ["decompress", "-o", "out.npy"]):
            self.refuses(*command, "no.swf", says="cannot read 'no.swf': No such file")
            self.refuses(*command, "sub", says="cannot read 'sub': Is a directory")
        if os.geteuid() != 0:
            (self.folder / "in.npy").chmod(0)
            done = self.run_program("compress", "in.npy", *TOPK, "-o", "out.swf")
            self.assertEqual((done.returncode, done.stderr), (2, b"sparsewire: cannot read 'in.npy': Permission denied\n"))

    def feed_without_end(self, *arguments, first=b""):
        """How many bytes it read before it gave up, and what it said. Nobody has to wait: it gets 64 MiB at most."""
        process = self.start(*arguments, stdin=subprocess.PIPE, bufsize=0)
        fed = 0
        try:
            process.stdin.write(first)
            while fed < 64 << 20:
                fed += process.stdin.write(bytes(65536))
        except BrokenPipeError:
            pass
        process.stdin.close()
        process.stdin = None  # so that communicate() does not flush it
        message = process.communicate()[1].decode()
        self.assertEqual((process.returncode, message.count("\n")), (2, 1), message)
        return fed, message

    def test_that_never_end(self):
        header = raw_frame(1000, [(2, 1.5)])[:24]
        for arguments, first, why in (
            (["inspect", "-"], b"", "not a frame"),
            (["decompress", "-", "-o", "out.npy"], b"", "not a frame"),
            (["inspect", "-"], header, "the checksum does not match"),
            (["train", "--config", "/dev/stdin"], b"", "longer than"),
            (["train", "--problem", "logreg", "--data", "/dev/stdin"], b"", "not a text file"),
            (["reproduce", "threshold-logreg", "--data", "/dev/stdin"], b"+1 1:1\n", "not a text file"),
            (["compress", "-", *TOPK, "-o", "out.swf"], b"", "is not a .npy file"),
        ):
            with self.subTest(arguments):
                fed, message = self.feed_without_end(*arguments, first=first)
                self.assertIn(why, message)
                self.assertLess(fed, 4 << 20)
        self.assertEqual(self.snapshot(), {})

    def test_with_line_breaks_in_their_names_are_reported_in_one_line(self):
        self.put("in.npy", npy(gaussians(8)))
        self.refuses("inspect", "no\nsuch\x1b[1m", says="'no\\nsuch\\x1b[1m'")
        self.refuses("compress", "in.npy", "--sparsifier", "a\nb", "-o", "out.swf", says="a\\nb")
        self.refuses("compress", "in.npy", *TOPK, "-o", "no\n/out.swf", code=1, says="no\\n/out.swf")
        self.refuses("compress", "in.npy", *TOPK, "-o", "out.swf", "--step", "1\n2", lines=2, says="1\\n2")
        self.refuses("compress", "in.npy", *TOPK, "-o", "out.swf", "--no\nsuch", lines=2, says="--no\\nsuch")
        self.refuses("no\nsuch", lines=2, says="'no\\nsuch'")
        self.refuses("train", "--problem", "a\tb\u009bc", says="a\\tb\\xc2\\x9bc")
        done = self.run_program("train", "--metrics", "m\n.jsonl", "--steps", "1")
        self.assertEqual(done.stderr.count(b"\n"), 2, done.stderr)  # the configuration and one step

    def test_that_cannot_be_written(self):
        self.put("in.npy", npy(gaussians(8)))
        self.put("mem.npy", npy(gaussians(8)))
        self.put("out.swf", raw_frame(10, [(2, 1.5)]))
        step = ["compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o"]
        self.refuses(*step, "no/out.swf", code=1, says="cannot write 'no/out.swf': No such file or directory")
        self.refuses(*step, "/dev/full", code=1, says="cannot write '/dev/full': No space left on device")
        self.refuses(*step, ".", code=1, says="cannot write '.': Is a directory")
        self.refuses(*step, "new.swf", "--json", "no/report", code=1, says="'no/report'")
        self.refuses(*step, "new.swf", "--json", "/dev/full", code=1, says="'/dev/full'")
        self.refuses(*step, "new.swf", "--state", "no/state", code=1, says="'no/state'")
        self.refuses("compress", "in.npy", *TOPK, "--memory", "no/mem.npy", "-o", "new.swf", code=1, says="'no/mem.npy'")
        self.refuses("decompress", "out.swf", "-o", "no/out.npy", code=1, says="'no/out.npy'")
        self.refuses("decompress", "out.swf", "-o", "/dev/full", code=1, says="'/dev/full'")
        self.refuses("inspect", "out.swf", "--json", "no/report", code=1, says="'no/report'")

    def test_that_are_folders_are_noticed_before_any_work(self):
        for option in ("--save-weights", "--json", "--report"):
            self.refuses("train", "--steps", "4000000000", option, ".", code=1, says="cannot write '.': Is a directory")
        (self.folder / "compare-out").mkdir()
        self.refuses("compare", "--steps", "4000000000", "--json", ".", code=1, says="cannot write '.': Is a directory")

    def test_that_are_the_same(self):
        for name in ("in.npy", "mem.npy"):
            self.put(name, npy(gaussians(8)))
        self.put("frame.swf", raw_frame(10, [(2, 1.5)]))
        (self.folder / "sub").mkdir()
        (self.folder / "link").symlink_to("in.npy")
        (self.folder / "future").symlink_to("sub/new")
        def step(*more):
            return ["compress", "in.npy", *TOPK, *more]  # fmt: skip
        for arguments in (
            step("-o", "in.npy"), step("-o", "./sub/../in.npy"), step("-o", "link"), step("-o", str(self.folder / "in.npy")),
            step("-o", "o", "--memory", "in.npy"), step("-o", "o", "--memory", "link"), step("-o", "mem.npy", "--memory", "mem.npy"),
            step("-o", "o", "--memory", "o"), step("-o", "future", "--memory", "sub/new"), step("-o", "o", "--memory", "s", "--state", "s"),
            step("-o", "o", "--json", "./o"), step("-o", "o", "--json", "in.npy"), step("-o", "-", "--json", "-"),
            ["decompress", "frame.swf", "-o", "frame.swf"], ["decompress", "frame.swf", "-o", "x", "--json", "x"],
            ["decompress", "frame.swf", "-o", "x.npy", "--sparse", "--json", "x.values.npy"], ["inspect", "frame.swf", "--json", "frame.swf"],
        ):  # fmt: skip
            with self.subTest(arguments):
                self.refuses(*arguments, says="are the same file")


class Files(Case):
    def test_are_not_written_to_a_closed_output(self):
        """A closed standard output must not become the lock of the memory, or any other file."""
        self.put("in.npy", npy(gaussians(8)))
        for output in ("-", "out.swf"):
            with self.subTest(output):
                command = ["compress", "in.npy", "--sparsifier", "topk:k=2", "--memory", "mem.npy", "-o", output]
                done = processes.run(["sh", "-c", 'exec "$0" "$@" >&-', PROGRAM, *command], cwd=self.folder,
                                     stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertFalse((self.folder / "mem.npy").exists(), "the entries of the frame would be lost")

    def test_have_locks_of_their_own_even_if_their_names_begin_alike(self):
        self.put("in.npy", npy(gaussians(8)))
        self.compress("--memory", "a" * 205 + "m", "--state", "a" * 205 + "s")

    def test_are_reached_through_links_and_keep_their_mode(self):
        (self.folder / "sub").mkdir()
        self.put("in.npy", npy(gaussians(8)))
        self.put("sub/mem.npy", npy([0] * 8))
        (self.folder / "sub/mem.npy").chmod(0o640)
        (self.folder / "mem.npy").symlink_to("sub/mem.npy")
        (self.folder / "out.swf").symlink_to("sub/frame")
        self.compress("--memory", "mem.npy")
        self.assertTrue((self.folder / "mem.npy").is_symlink() and (self.folder / "out.swf").is_symlink())
        self.assertEqual(stat.S_IMODE((self.folder / "sub/mem.npy").stat().st_mode), 0o640)
        self.assertEqual(sum(number != 0 for number in self.numbers("sub/mem.npy")), 6)
        self.assertEqual(sorted(p.name for p in (self.folder / "sub").iterdir()), ["frame", "mem.npy"])

    def test_that_are_new_have_the_usual_mode(self):
        self.put("in.npy", npy(gaussians(8)))
        self.run_ok("compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf", umask=0o027)
        for name in ("mem.npy", "out.swf"):
            self.assertEqual(stat.S_IMODE((self.folder / name).stat().st_mode), 0o640)
        self.assertEqual(len(self.snapshot()), 3, "nothing else is left")

    def test_can_be_standard_input_and_output(self):
        gradient = npy(gaussians(30000))
        self.put("in.npy", gradient)
        self.compress()
        frame = self.get("out.swf")
        for names in (("-", "-"), ("/dev/stdin", "/dev/stdout")):
            self.assertEqual(self.run_ok("compress", names[0], *TOPK, "-o", names[1], stdin=gradient), frame)
            self.decompress()
            self.assertEqual(self.run_ok("decompress", names[0], "-o", names[1], stdin=frame), self.get("out.npy"))
            self.assertIn(b"codec            adaptive", self.run_ok("inspect", names[0], stdin=frame))
        with open(self.folder / "log", "wb") as log:
            log.write(b"before ")
            log.flush()
            self.assertEqual(self.run_program("compress", "in.npy", *TOPK, "-o", "-", stdout=log).returncode, 0)
            log.seek(0, os.SEEK_END)
            log.write(b" after")
        self.assertEqual(self.get("log"), b"before " + frame + b" after")
        self.refuses("decompress", "out.swf", "-o", "-", "--sparse", says="--sparse")

    def test_may_be_null_devices(self):
        self.put("in.npy", npy(gaussians(8)))
        self.run_ok("compress", "in.npy", *TOPK, "-o", "/dev/null", "--json", "/dev/null")

    def stop_in_the_middle(self):
        """A step that cannot end: its frame is longer than the pipe holds. Its first byte has been read."""
        self.put("in.npy", npy(gaussians(100000)))
        self.put("mem.npy", npy([0] * 100000))
        os.mkfifo(self.folder / "pipe")
        pipe = os.fdopen(os.open(self.folder / "pipe", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
        process = self.start("compress", "in.npy", "--sparsifier", "dense", "--memory", "mem.npy", "--state", "s", "-o", "pipe")
        self.assertTrue(select.select([pipe], [], [], processes.LIMIT)[0], "no frame came")
        os.set_blocking(pipe.fileno(), True)
        return process, pipe, pipe.read(1)

    def test_survive_a_kill_before_the_frame_is_complete(self):
        before = npy([0] * 100000)
        process, pipe, _ = self.stop_in_the_middle()
        self.assertEqual(self.get("mem.npy"), before)
        self.assertFalse((self.folder / "s").exists())
        process.send_signal(signal.SIGKILL)
        process.communicate()
        pipe.close()
        self.assertEqual(self.get("mem.npy"), before)
        self.compress("--memory", "mem.npy", "--state", "s", sparsifier="dense")
        self.assertEqual(self.decompress(), gaussians(100000))

    def test_that_a_kill_left_behind_are_removed_when_they_are_written_again(self):
        self.put("in.npy", npy(gaussians(8)))
        os.mkfifo(self.folder / "report")
        step = ["compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf", "--json"]
        process = self.start(*step, "report")  # waits for a reader
        while not list(self.folder.glob(".sparsewire-*.tmp")):
            self.assertIsNone(process.poll())
        process.kill()
        process.communicate()
        self.assertEqual(len(list(self.folder.glob(".sparsewire-*.tmp"))), 1)
        self.run_ok(*step, "-")
        self.assertEqual(sorted(self.snapshot()), ["in.npy", "mem.npy", "out.swf", "report"])

    def locks(self):
        return list(self.folder.glob("*.lock")) + list(self.folder.glob(".*.lock"))

    def test_are_for_one_compress_at_a_time(self):
        process, pipe, _ = self.stop_in_the_middle()
        (self.folder / "link").symlink_to("mem.npy")
        other = ["compress", "in.npy", *TOPK, "-o", "other.swf"]
        for option, name in (("--memory", "mem.npy"), ("--memory", "link"), ("--state", "s")):
            self.refuses(*other, option, name, says=f"{option} '{name}' is in use by another 'sparsewire compress'")
        self.run_ok(*other, "--memory", "other.npy", "--state", "t")  # others in the same folder are free
        pipe.readall()
        pipe.close()
        self.assertEqual(process.wait(), 0)
        self.run_ok(*other, "--memory", "mem.npy")
        self.assertEqual(self.locks(), [])

    def test_are_free_again_after_a_kill(self):
        process, pipe, _ = self.stop_in_the_middle()
        process.kill()
        process.communicate()
        pipe.close()
        self.compress("--memory", "mem.npy", "--state", "s", sparsifier="dense")
        self.assertEqual(self.locks(), [])

    def test_are_tidied_up_after_ctrl_c(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process, pipe, _ = self.stop_in_the_middle()
            process.send_signal(number)
            process.communicate()
            pipe.close()
            self.assertEqual(process.returncode, -number)
            self.assertEqual(self.get("mem.npy"), npy([0] * 100000))
            self.assertEqual(sorted(self.snapshot()), ["in.npy", "mem.npy", "pipe"])
            (self.folder / "pipe").unlink()

    def test_do_not_change_if_nothing_can_be_printed(self):
        self.put("in.npy", npy(gaussians(8)))
        self.put("mem.npy", npy([0] * 8))
        before = self.snapshot()
        for more in ([], ["--json", "-"]):
            with open("/dev/full", "wb") as full:
                done = self.run_program("compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf", *more, stdout=full)
            self.assertEqual((done.returncode, done.stderr), (1, b"sparsewire: cannot write standard output\n"))
            self.assertEqual(self.snapshot(), before)

    def test_are_not_the_standard_output(self):
        self.put("in.npy", npy(gaussians(8)))
        self.put("mem.npy", npy([0] * 8))
        with open(self.folder / "mem.npy", "ab") as log:
            done = self.run_program("compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf", stdout=log)
        self.assertEqual((done.returncode, done.stderr.count(b"\n")), (2, 1))
        self.assertEqual(self.get("mem.npy"), npy([0] * 8))
        self.refuses("compress", "in.npy", *TOPK, "-o", "-", "--json", "/dev/stdout", says="the same file")

    def test_may_have_names_that_are_not_text(self):
        self.put("in.npy", npy(gaussians(8)))
        self.compress()
        done = self.run_program("decompress", "out.swf", "-o", b"\xff.npy", "--json", "j")
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_survive_a_reader_that_leaves(self):
        process, pipe, _ = self.stop_in_the_middle()
        pipe.close()
        self.assertEqual(process.communicate()[1], b"sparsewire: cannot write 'pipe': Broken pipe\n")
        self.assertEqual(process.returncode, 1)
        self.assertEqual(self.get("mem.npy"), npy([0] * 100000))
        self.assertEqual(sorted(self.snapshot()), ["in.npy", "mem.npy", "pipe"])

    def test_change_after_the_frame_is_complete(self):
        process, pipe, frame = self.stop_in_the_middle()
        (self.folder / "mem.npy").unlink()
        (self.folder / "mem.npy").mkdir()  # so that it cannot be replaced
        frame += pipe.readall()
        pipe.close()
        self.assertEqual(process.communicate()[1], b"sparsewire: cannot write 'mem.npy': Is a directory\n")
        self.assertEqual(process.returncode, 1)
        self.put("out.swf", frame)
        self.assertEqual(self.decompress(), gaussians(100000))
        self.assertEqual(sorted(self.snapshot()), ["in.npy", "mem.npy", "out.npy", "out.swf", "pipe", "s"])

    def stop_before_the_first_rename(self, spoil):
        """Waits for a reader of its report, when the temporary file of the memory is written; then `spoil` becomes a folder."""
        self.put("in.npy", npy([4, 1]))
        self.put("mem.npy", npy([0, 0]))
        os.mkfifo(self.folder / "report")
        process = self.start("compress", "in.npy", "--sparsifier", "topk:k=1", "--memory", "mem.npy", "-o", "out.swf", "--json", "report")
        while not list(self.folder.glob(".sparsewire-*.tmp")):
            self.assertEqual((process.poll(), self.get("mem.npy")), (None, npy([0, 0])))
        (self.folder / spoil).unlink(missing_ok=True)
        (self.folder / spoil).mkdir()
        report = os.open(self.folder / "report", os.O_RDONLY | os.O_NONBLOCK)  # now it continues
        self.addCleanup(os.close, report)
        self.assertEqual(process.communicate()[1].decode(), f"sparsewire: cannot write '{spoil}': Is a directory\n")
        self.assertEqual(process.returncode, 1)
        self.assertEqual(list(self.folder.glob(".sparsewire-*")), [])

    def test_leave_the_memory_where_the_frame_fails(self):
        self.stop_before_the_first_rename("out.swf")
        self.assertEqual(self.get("mem.npy"), npy([0, 0]))

    def test_leave_the_frame_where_the_memory_fails(self):
        self.stop_before_the_first_rename("mem.npy")
        self.assertEqual(self.decompress(), [4, 0])


if __name__ == "__main__":
    unittest.main()
