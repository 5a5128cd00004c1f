#!/usr/bin/env python3
"""Counts the test cases of a ctest run, and prints: PASSED FAILED SKIPPED.

    count_tests.py OUTPUT_OF_CTEST LAST_TEST_LOG

An entry of ctest that is a GoogleTest program or a run of pytest counts as many cases as it says it ran; any other entry
counts as one.
"""

import re
import sys

RESULT = re.compile(r"^ *\d+/\d+ Test +#\d+: .*?(Passed|Failed|\*\*\*\S+(?: \S+)*?) +[\d.]+ sec", re.M)
ENTRY = re.compile(r"^\d+/\d+ Testing: .*?(?=^\d+/\d+ Testing: |\Z)", re.M | re.S)


def cases(entry):
    """What a GoogleTest program or pytest printed: (passed, failed, skipped); None if it is something else."""
    pytest = re.search(r"^=+ (.*\b(?:passed|failed|skipped|errors?)\b.*) in [\d.]+s.* =+$", entry, re.M)
    if pytest:
        counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", pytest.group(1))}
        bad = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
        return counts.get("passed", 0), bad, counts.get("skipped", 0)
    passed = re.search(r"^\[  PASSED  \] (\d+) tests?\.", entry, re.M)
    if not passed:
        return None
    failed = re.search(r"^\[  FAILED  \] (\d+) tests?, listed below", entry, re.M)
    skipped = re.search(r"^\[  SKIPPED \] (\d+) tests?", entry, re.M)
    return tuple(int(found.group(1)) if found else 0 for found in (passed, failed, skipped))


def main(output_path, log_path):
    with open(output_path, encoding="utf-8", errors="replace") as file:
        results = RESULT.findall(file.read())
    with open(log_path, encoding="utf-8", errors="replace") as file:
        entries = ENTRY.findall(file.read())
    passed = failed = skipped = others = 0
    for entry in entries:
        found = cases(entry)
        if found is None:
            others += 1
        else:
            passed, failed, skipped = passed + found[0], failed + found[1], skipped + found[2]
    good = sum(result == "Passed" for result in results)
    left_out = sum("Skipped" in result for result in results)
    bad = len(results) - good - left_out
    # Entries that are neither, and those of them that failed before they could say what they ran.
    other_bad = max(0, bad - sum(1 for entry in entries if (cases(entry) or (0, 0, 0))[1]))
    print(passed + max(0, others - other_bad - left_out), failed + other_bad, skipped + left_out)


main(*sys.argv[1:])
