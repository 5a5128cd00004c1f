"""What the pages say about the program agrees with it: commands, their options, the specs in them, tables of keys.

    docs_test.py PROGRAM [SUITE]
"""

import re
import shlex
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "site"))
sys.dont_write_bytecode = True

import tables  # noqa: E402
from program import OPTIONS, Program  # noqa: E402

program = None  # set from the command line
# Not those that tell what was once.
PAGES = [page for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "python/README.md"])
         if page.name != "CHANGELOG.md" and not {"archive", "decisions"} & set(page.parts)]  # fmt: skip
KINDS = {f"--{option}": kind for kind, option in OPTIONS.items()} | {"--downlink": "sparsifiers", "--downlink-codec": "codecs",
                                                                      "--optimizer": "optimisers"}  # fmt: skip


def logical_lines(text):
    """Lines of code; a line that ends with a backslash, or is followed by one that begins with an option, goes on."""
    lines = []
    for line in text.split("\n"):
        goes_on = lines and lines[-1] and (lines[-1].endswith("\\") or re.match(r"\s+(--[a-z]|')", line) and "sparsewire " in lines[-1])
        if goes_on:
            lines[-1] = lines[-1].rstrip("\\").rstrip() + " " + line.strip()
        else:
            lines.append(line.strip())
    return lines


def code_of(text):
    """The code of a page: its blocks, and what stands between backticks."""
    fence = re.compile(r"^ *```\w*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
    blocks = fence.findall(text)
    rest = fence.sub("", text)
    blocks += re.findall(r"(?:^    +\S.*\n)+", rest, re.MULTILINE)
    inline = re.findall(r"`([^`]+)`", re.sub(r"^    .*$", "", rest, flags=re.MULTILINE))
    return [line for block in blocks for line in logical_lines(block)] + [" ".join(one.split()) for one in inline]


def commands_in(line):
    """The calls of the program in a line of code: (command, the words behind it). Behind a wide gap stands a comment."""
    line = re.split(r"(?<=\S)\s{3,}(?=[^\s-])", line)[0]
    for found in re.finditer(r"(?:^|[\s/(])(?:sparsewire|run\.sh)\s+([a-z]+)\b([^|;#&)]*(?:'[^']*'[^|;#&)]*)*)", line):
        try:
            words = shlex.split(found[2], comments=True)
        except ValueError:
            words = found[2].split()
        yield found[1], words


def calls():
    for page in PAGES:
        for line in code_of(page.read_text(encoding="utf-8")):
            for command, words in commands_in(line):
                yield page.relative_to(ROOT).as_posix(), line, command, words


class Commands(unittest.TestCase):
    maxDiff = None

    def test_every_call_names_a_command_and_options_that_there_are(self):
        wrong, seen = [], 0
        for page, line, command, words in calls():
            if command not in program.commands:
                if line.startswith("sparsewire") and "--" in line:
                    wrong.append(f"{page}: no command {command}: {line}")
                continue
            seen += 1
            for word in words:
                option = re.match(r"-?-[a-z][\w-]*", word)
                if option and option[0] not in program.option_names(command):
                    wrong.append(f"{page}: {command} has no {option[0]}: {line}")
        self.assertEqual([], wrong)
        self.assertGreater(seen, 30)

    def test_every_spec_in_a_call_has_a_name_and_keys_that_there_are(self):
        wrong, seen = [], set()
        for page, line, command, words in calls():
            for option, spec in zip(words, words[1:]):
                kind = KINDS.get(option)
                if not kind or not re.fullmatch(r"[a-z]\w*(:[\w=.,/-]+)?", spec):
                    continue
                name, _, keys = spec.partition(":")
                if name not in program.names(kind):
                    wrong.append(f"{page}: {option} has no {name}: {line}")
                    continue
                named = {key.partition("=")[0] for key in keys.split(",") if key}
                if named:
                    seen.add(spec)
                if unknown := named - set(program.keys(kind, name)):
                    wrong.append(f"{page}: {spec} has no {', '.join(unknown)}: {line}")
        self.assertEqual([], wrong)
        self.assertGreater(len(seen), 5)


class Scripts(unittest.TestCase):
    maxDiff = None

    def test_every_option_of_a_script_is_in_its_source(self):
        wrong, seen = [], 0
        for page in PAGES:
            for line in code_of(page.read_text(encoding="utf-8")):
                # Up to the next program: some scripts start others.
                for name, rest in re.findall(r"(?:^|[\s/])((?:tools|bench|examples)/[\w./-]+)((?:\s+(?!\S*/|python|sparsewire)[^\s|;#]+)*)", line):
                    script = ROOT / name
                    if not script.is_file():
                        continue
                    source = "".join(one.read_text(encoding="utf-8") for one in [script, *script.parent.glob("*.py")])
                    for option in re.findall(r"\s(--[a-z][\w-]*)", rest):
                        seen += 1
                        if option not in source:
                            wrong.append(f"{page.relative_to(ROOT)}: {name} has no {option}: {line}")
        self.assertEqual([], wrong)
        self.assertGreater(seen, 3)


class Tables(unittest.TestCase):
    def test_generated_tables_can_be_made_and_have_all_keys(self):
        marked = 0
        for page in PAGES:
            text = page.read_text(encoding="utf-8")
            marked += len(re.findall(r"^<!-- (?:options|list|keys|allowed|commands)\b", text, re.MULTILINE))
            self.assertNotRegex(tables.filled(text, program), r"(?m)^<!-- (?:options|list|keys|allowed|commands)\b", page)
        self.assertGreater(marked, 15)

    def test_every_command_has_a_section(self):
        text = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
        self.assertEqual(set(program.commands), set(program.commands) & set(re.findall(r"^## (\w+)$", text, re.MULTILINE)))


if __name__ == "__main__":
    program = Program(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=1)
