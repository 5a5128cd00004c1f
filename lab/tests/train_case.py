"""What the tests of trainings share: a small training, on threads or under mpirun, and its files."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import processes

# The first two arguments of the test that imports this. MPIEXEC: "" where there is none.
if len(sys.argv) < 3:
    print(sys.modules["__main__"].__doc__)
    sys.exit(2)
PROGRAM, MPIEXEC = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)


# Every kind of state: memories of workers and servers, momentum; small enough for hundreds of steps a second.
SMALL = ["--problem", "mlp:inputs=12,hidden=8,classes=3,samples=200,held_back=40,batch=8", "--sparsifier", "topk:ratio=0.05"]
SMALL += ["--downlink", "topk:ratio=0.1", "--optimiser", "sgd:momentum=0.9", "--lr", "0.05", "--seed", "3", "--eval-every", "10"]
THREADS = ["--workers", "3"]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sparsewire_train_"))
        self.addCleanup(shutil.rmtree, self.folder)
        open_mpi = tempfile.mkdtemp(prefix="sparsewire_train_mpi_")
        self.addCleanup(shutil.rmtree, open_mpi, ignore_errors=True)
        os.environ.update(processes.open_mpi_folder(open_mpi))

    def command(self, *arguments, ranks=0, command="train"):
        if not ranks:
            return [PROGRAM, command, *arguments]
        if not MPIEXEC:
            self.skipTest("no mpirun")
        return [MPIEXEC, "-n", str(ranks), PROGRAM, command, "--transport", "mpi", *arguments]

    def run_train(self, *arguments, ranks=0, command="train", **more):
        return self.run_command(self.command(*arguments, ranks=ranks, command=command), **more)

    def run_command(self, command, **more):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return processes.run(command, cwd=self.folder, text=True, **{**pipes, **more})

    def train(self, *arguments, ranks=0, **more):
        """The report of a training that goes well."""
        done = self.run_train(*arguments, "--json", "report.json", ranks=ranks, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.stderr = done.stderr
        return json.loads((self.folder / "report.json").read_text())

    def refuses(self, *arguments, says="", code=2, ranks=0, lines=1, command="train"):
        done = self.run_train(*arguments, "-q", ranks=ranks, command=command)
        ours = [line for line in done.stderr.splitlines() if line.startswith("sparsewire: ")]
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(ours), 1, done.stderr)
        if not ranks:
            self.assertEqual(len(done.stderr.splitlines()), lines, done.stderr)
        self.assertIn(says, ours[0])
        return ours[0]

    def start(self, *arguments, ranks=0):
        command = self.command(*arguments, "--json", "report.json", ranks=ranks)
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return processes.start(self, command, cwd=self.folder, text=True, **pipes)

    def metrics(self, name="m.jsonl"):
        """Whole lines only: the last one may be on its way. By one read, because a training that continues cuts the file and appends to it."""
        try:
            with open(self.folder / name, "rb", buffering=0) as file:
                text = file.read(1 << 28).decode()
        except FileNotFoundError:
            text = ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def last_step(self):
        lines = self.metrics()
        return lines[-1]["step"] if lines else 0

    def wait_for_step(self, process, step):
        """Whether it got there before it ended."""
        while self.last_step() < step:
            try:
                process.wait(timeout=0.001)
                return False
            except subprocess.TimeoutExpired:
                pass
        return True


def without_times(lines):
    return [{key: value for key, value in line.items() if not key.startswith("ns_") and key != "seconds"} for line in lines]
