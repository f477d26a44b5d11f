"""Runs a bench as its test does: --quick, on this build's programs, and no judging of times."""

import os
import pathlib
import subprocess
import sys

SKIPPED = 77


def check(script, expected, *words):
    """Ends the test where the bench fails, or prints none of what is expected of it."""
    path = pathlib.Path(__file__).with_name(script)
    command = [sys.executable, "-B", path, "--quick", "--bin", os.environ["STRAIT_BIN"], *words]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="\n")
    if done.returncode == SKIPPED:
        sys.exit(SKIPPED)
    missing = [words for words in expected if words not in done.stdout]
    if done.returncode != 0 or missing:
        sys.exit(f"ended with {done.returncode}, without: {missing}")
