"""Runs a bench as its test does: quickly, on this build's programs, and no judging of times."""

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


def built(target, *words):
    """Builds an on-demand program, runs it and returns what it printed."""
    build = pathlib.Path(os.environ["STRAIT_BUILD"])
    subprocess.run(["cmake", "--build", build, "--target", target], check=True, stdout=subprocess.DEVNULL)
    printed = subprocess.run([build / "bin" / target, *words], check=True, capture_output=True, text=True).stdout
    print(printed)
    return printed


def skip_without_libtorch():
    if not (pathlib.Path(os.environ["STRAIT_BUILD"]) / "kernels").is_dir():
        print("this build is without libtorch, and so without kernels")
        sys.exit(SKIPPED)
