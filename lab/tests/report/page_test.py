#!/usr/bin/env python3
"""The page of a report, in a real browser.

    page_test.py CHROMIUM CHROMEDRIVER PROGRAM [SUITE]...     SUITE: some of the classes below and in the files that it imports
"""

import sys
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import case
from answer_cases import Answers  # noqa: F401
from chart_cases import Charts  # noqa: F401
from hostile_cases import Hostile  # noqa: F401
from look_cases import Look  # noqa: F401
from program_cases import Program  # noqa: F401


if __name__ == "__main__":
    if len(sys.argv) < 4:
        print(__doc__)
        sys.exit(2)
    case.SETTINGS.update(chromium=sys.argv.pop(1), driver=sys.argv.pop(1), program=sys.argv.pop(1))
    try:
        unittest.main()
    finally:
        case.close()
