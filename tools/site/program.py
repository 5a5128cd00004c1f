"""What the program says about itself: the options of its sub-commands, and what its specs may hold."""

import functools
import json
import re
import subprocess

# The keys of each kind of spec, and the option of `train` that takes it.
OPTIONS = {"sparsifiers": "sparsifier", "feedbacks": "feedback", "codecs": "codec", "problems": "problem", "splits": "split",
           "optimisers": "optimiser", "schedules": "schedule"}  # fmt: skip
FEEDBACKS = ["ef", "none", "momentum"]  # `sparsewire list` has no table of these


def power_of_two(number):
    for power in (number.bit_length() - 1, number.bit_length()):
        if number in (2**power, 2**power - 1):
            return f"2^{power}" if number == 2**power else f"2^{power} - 1"
    return str(number)


class Program:
    def __init__(self, path):
        self.path = str(path)

    def run(self, *arguments):
        return subprocess.run([self.path, *arguments], capture_output=True, text=True, timeout=60)

    @functools.cached_property
    def commands(self):
        text = self.run("--help").stdout
        return re.findall(r"^  (\w+) {2,}\S", text[text.index("\nSubcommands:") :], re.MULTILINE)

    @functools.cache
    def summary(self, command):
        return self.run(command, "--help").stdout.split("\n")[0]

    @functools.cache
    def options(self, command):
        """The groups of options: [(title, [(names with their value, description)])], the positionals first."""
        groups, rows = [], None
        for line in self.run(command, "--help").stdout.split("\n"):
            title = re.match(r"^(\w.*):$", line)
            if title and title[1] != "Examples":
                rows = []
                groups.append((title[1], rows))
            elif rows is not None and re.match(r"^  \S", line):
                names, _, meaning = line.strip().partition("  ")
                rows.append([names.strip(), meaning.strip()])
            elif rows and re.match(r"^ {30}\S", line):
                rows[-1][1] = (rows[-1][1] + " " + line.strip()).strip()
            elif line.strip():
                rows = None  # what stands behind the options
        return [(title, [tuple(row) for row in rows]) for title, rows in groups if rows]

    def option_names(self, command):
        return {name for _, rows in self.options(command) for names, _ in rows for name in re.findall(r"(?<!\w)--?[a-z][\w-]*", names)}

    @functools.cached_property
    def choices(self):
        """The tables of `sparsewire list`, by their keys in JSON."""
        return json.loads(self.run("list", "--json", "-").stdout)

    def names(self, kind):
        return FEEDBACKS if kind == "feedbacks" else [one["name"] for one in self.choices[kind]]

    def error(self, kind, spec):
        # A problem of two weights, which takes no time to make; splits need samples.
        small = "mlp:inputs=1,hidden=0,classes=2,samples=8,held_back=1,batch=1" if kind == "splits" else "regtopk_toy"
        problem = [] if kind == "problems" else ["--problem", small]
        return self.run("train", *problem, f"--{OPTIONS[kind]}", spec, "--steps", "1", "--quiet").stderr.split("\n")[0]

    @functools.cache
    def keys(self, kind, name):
        """The keys that a spec may have, in the program's order."""
        known = re.search(r"valid keys are (.*)$", self.error(kind, f"{name}:no_such_key=1"))
        return known[1].split(", ") if known else []

    @functools.cache
    def allowed(self, kind, name, key):
        """What a key may be, as an error says it: 'in (0, 1]'."""
        said = re.search(r"=\? is (?:not|neither) (?:an? )?(.*)$", self.error(kind, f"{name}:{key}=?"))
        if not said:
            return ""
        text = said[1]
        if text.startswith("one of "):
            return ", ".join(f"`{word}`" for word in sorted(text.removeprefix("one of ").split(", ")))
        text = re.sub(r"^number in \(-inf, inf\)$", "a number", text)
        text = re.sub(r"^(whole )?number in ", r"\1", text).replace("whole [", "whole, [").replace("0 nor widths", "0, or widths")
        text = re.sub(r"\b1e-06\b", "0.000001", text).replace("3.4028234663852886e+38", "3.4e38").replace("e+", "e")
        text = re.sub(r"\b\d{7,}\b", lambda number: power_of_two(int(number[0])), text)
        return text.replace(", 2]", ", entries]") if key == "k" else text
