#!/usr/bin/env python3
"""sparsewire data from outside: what it says about data sets that are there, missing, or damaged.

    cli_data_test.py PROGRAM [SUITE]...     PROGRAM: the sparsewire to test; SUITE: some of the classes below
"""

import gzip
import hashlib
import json
import os
import struct
import unittest

from cli_case import Case


def idx(shape, numbers):
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(numbers)


class Data(Case):
    def setUp(self):
        super().setUp()
        self.without = {name: value for name, value in os.environ.items() if name != "SPARSEWIRE_DATA"}

    def write_mnist(self, name="data/mnist"):
        (self.folder / name).mkdir(parents=True)
        for part in ("train", "t10k"):
            self.put(f"{name}/{part}-images-idx3-ubyte.gz", gzip.compress(idx([10, 4, 4], range(160))))
            self.put(f"{name}/{part}-labels-idx1-ubyte", idx([10], range(10)))

    def report(self, *arguments, code=0, **more):
        done = self.run_program("data", *arguments, "--json", "-", **{"env": self.without, **more})
        self.assertEqual((done.returncode, done.stderr), (code, b""))
        return json.loads(done.stdout)

    def states(self, *arguments, **more):
        return {one["name"]: one["state"] for one in self.report(*arguments, **more)["data_sets"]}

    def test_are_listed_with_their_sources_without_any_folder(self):
        text = self.run_ok("data", env=self.without).decode()
        self.assertIn("No folder of data sets is named", text)
        for word in ("mnist: missing", "fashion-mnist: missing", "cifar10: missing", "tinyshakespeare: missing",
                     "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"):
            self.assertIn(word, text)
        for line in text.splitlines():
            self.assertTrue(len(line) <= 80 or "://" in line, line)
        report = self.report()
        self.assertIsNone(report["data_dir"])
        self.assertEqual([len(one["files"]) for one in report["data_sets"]], [4, 4, 6, 1])

    def test_that_are_readable_but_not_official_are_no_error(self):
        self.write_mnist()
        (self.folder / "data/cifar10/cifar-10-batches-bin").mkdir(parents=True)
        for name in [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]:
            self.put(f"data/cifar10/cifar-10-batches-bin/{name}.bin", bytes(2 * 3073))
        text = self.run_ok("data", "--data-dir", "data", env=self.without).decode()
        self.assertIn("mnist: readable, but not the official files; 10 + 10 images of 1x4x4", text)
        self.assertIn("cifar10: readable, but not the official files; 10 + 2 images of 3x32x32", text)
        mnist, _, cifar10, _ = self.report("--data-dir", "data")["data_sets"]
        for file in mnist["files"] + cifar10["files"]:
            content = self.get(file["path"])
            self.assertEqual((file["state"], file["bytes"]), ("other", len(content)))
            self.assertEqual(file["md5"], hashlib.md5(content).hexdigest())
            self.assertNotEqual(file["md5"], file["official_md5"])
        self.assertEqual(mnist["fingerprint"].split(",")[0], f"{16 + 160 + 8 + 10} bytes")

    def test_are_found_by_the_environment_unless_an_option_names_the_folder(self):
        self.write_mnist("a/mnist")
        (self.folder / "b").mkdir()
        both = {**self.without, "SPARSEWIRE_DATA": "a"}
        self.assertEqual(self.states(env=both)["mnist"], "readable")
        self.assertEqual(self.states("--data-dir", "b", env=both)["mnist"], "missing")
        self.refuses("data", "--data-dir", "c", says="'c', which --data-dir names, is not a folder", env=both)
        self.refuses("data", env={**both, "SPARSEWIRE_DATA": "c"}, says="'c', which SPARSEWIRE_DATA names, is not a folder")

    def test_that_cannot_be_read_are_reported_and_fail(self):
        self.write_mnist()
        path = "data/mnist/t10k-images-idx3-ubyte.gz"
        self.put(path, self.get(path)[:-9])
        done = self.run_program("data", "--data-dir", "data", env=self.without)
        self.assertEqual((done.returncode, done.stderr), (1, b""))
        self.assertIn(b"mnist: unreadable: 'data/mnist/t10k-images-idx3-ubyte.gz' is cut short", done.stdout.replace(b"\n", b" "))
        one = self.report("mnist", "--data-dir", "data", code=1)["data_sets"][0]
        self.assertEqual(one["state"], "unreadable")
        self.assertIn("is cut short", one["message"])

    def test_that_are_named_must_be_there(self):
        self.write_mnist()
        os.remove(self.folder / "data/mnist/train-labels-idx1-ubyte")
        self.assertEqual(self.states("--data-dir", "data")["mnist"], "incomplete")
        self.assertEqual(self.states("mnist", "--data-dir", "data", code=1), {"mnist": "incomplete"})
        self.assertEqual(self.states("cifar10", "--data-dir", "data", code=1), {"cifar10": "missing"})
        self.refuses("data", "svhn", says="'svhn' is not a data set; there are mnist, ", env=self.without)

    def test_are_official_where_they_are_there(self):
        """Only with SPARSEWIRE_DATA: the real files are not part of the repository."""
        if "SPARSEWIRE_DATA" not in os.environ:
            self.skipTest("SPARSEWIRE_DATA names no folder")
        states = self.states("mnist", "fashion-mnist", "tinyshakespeare", env=os.environ)
        self.assertEqual(set(states.values()), {"official"}, states)


if __name__ == "__main__":
    unittest.main()
