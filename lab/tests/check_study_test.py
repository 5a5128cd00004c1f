"""Statistics of made-up studies, computed again; and that the check finds a number that is wrong, wherever it is.

    check_study_test.py STUDY_CASES
"""

import copy
import json
import os
import subprocess
import sys
import tempfile
import unittest

import check_study
import paper_tables
from patience import patient

PROGRAM = None
EXPECTED = {
    "usual", "ties", "diverged_judging_seed", "diverged_baseline", "diverged_tuning", "censored", "censored_even",
    "one_seed", "two_methods_two_seeds", "merged", "own_parameters", "untuned", "accuracy", "tuned_by_accuracy", "cosine",
    "budget", "baseline_with_ratios", "pilots", "unfinished", "still_tuning",
}  # fmt: skip


def leaves(value, path=()):
    """Every number, word and null of a JSON value, with its path."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, path + (key,))
    elif isinstance(value, list):
        for i, one in enumerate(value):
            yield from leaves(one, path + (i,))
    else:
        yield path, value


def changed(value, path):
    """A copy in which one leaf is a little different."""
    copied = copy.deepcopy(value)
    place = copied
    for key in path[:-1]:
        place = place[key]
    old = place[path[-1]]
    if isinstance(old, bool) or old is None:
        place[path[-1]] = not old
    elif isinstance(old, (int, float)):
        place[path[-1]] = old + 1 if isinstance(old, int) else old * 1.0001 + (0.001 if old == 0 else 0)
    else:
        place[path[-1]] = old + "x"
    return copied


def other_text(text):
    try:
        return repr(float(text) * 1.0001 + 1e-5)
    except ValueError:
        return text + "1"


class MadeUpStudies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # In memory where that is possible: every record is brought to disk, and there are a thousand.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        cls.folder = tempfile.TemporaryDirectory(prefix="sparsewire_test_", dir=memory)
        subprocess.run([PROGRAM, cls.folder.name], check=True, timeout=patient(300))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_have_the_statistics_that_python_computes(self):
        self.assertEqual(set(os.listdir(self.folder.name)), EXPECTED)
        for name in sorted(EXPECTED):
            with self.subTest(name):
                self.assertEqual(check_study.check(os.path.join(self.folder.name, name)), [])

    def test_fit_80_columns(self):
        for name in sorted(EXPECTED):
            with open(os.path.join(self.folder.name, name, "summary.txt"), encoding="utf-8") as file:
                for line in file:
                    self.assertLessEqual(len(line.rstrip("\n")), 80, f"{name}: {line}")

    def test_have_the_same_tables_for_a_paper(self):
        for name in sorted(EXPECTED):
            with self.subTest(name):
                texts = []
                for end in ("md", "tex"):
                    with open(os.path.join(self.folder.name, name, f"summary.{end}"), encoding="utf-8") as file:
                        texts.append(file.read())
                self.assertEqual(paper_tables.read_latex(texts[1]), paper_tables.read_markdown(texts[0]))

    def check_finds(self, name):
        """That no leaf of summary.json can change without being noticed."""
        checker = check_study.Check(os.path.join(self.folder.name, name))
        summary = checker.summary
        for path, _ in list(leaves(summary)):
            if path[0] in ("schema", "intervals", "notes"):
                continue
            checker.problems = []
            checker.summary = changed(summary, path)
            try:
                problems = checker.check()
            except Exception as error:  # a key that is no longer there
                problems = [repr(error)]
            self.assertTrue(problems, f"{name}: {path} was changed, and nothing found")

    def test_cannot_be_changed_unnoticed(self):
        for name in ("two_methods_two_seeds", "pilots"):
            self.check_finds(name)

    def test_cannot_have_other_rows(self):
        checker = check_study.Check(os.path.join(self.folder.name, "pilots"))
        rows = checker.rows
        for i in (0, len(rows) // 2, len(rows) - 1):
            for column in rows[i]:
                checker.problems = []
                checker.rows = copy.deepcopy(rows)
                checker.rows[i][column] = other_text(rows[i][column])
                self.assertTrue(checker.check(), f"{column} was changed, and nothing found")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
