"""The annotations, shapes included, are what is passed and returned."""

import os
import subprocess
import sys
from pathlib import Path


def test_annotations_are_true():
    tests = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}
    program = [sys.executable, str(tests / "checked_program.py")]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
