"""The limits of tests, in one place. They end what hangs and say nothing about speed, so they are generous. On a machine
that needs more, SPARSEWIRE_TEST_PATIENCE=3 makes all of them three times as long. patience.h is the same for C++.
"""

import os

PATIENCE = max(float(os.environ.get("SPARSEWIRE_TEST_PATIENCE", "1")), 0.1)


def patient(seconds):
    return seconds * PATIENCE


# A deadline that passes in the test, between processes, in real time: a busy machine must not use it up.
DEADLINE_THAT_PASSES = patient(5)
