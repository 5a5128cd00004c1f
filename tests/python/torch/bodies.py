"""What the processes of hook_test.py do: each function of these files is called in every rank, and its result is printed as
JSON."""

import cuda_bodies
import failing_bodies
import saving_bodies
import training_bodies
from models import obey

if __name__ == "__main__":
    obey({**vars(training_bodies), **vars(saving_bodies), **vars(failing_bodies), **vars(cuda_bodies)})
