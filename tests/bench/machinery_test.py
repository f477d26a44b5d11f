"""The bench runs from end to end on a tiny model and prints its tables. Times are not judged."""

import os
import pathlib
import subprocess
import sys

EXPECTED = ["measured / forecast", "measured / replayed", "2 stages, 1.0: peak", "first step"]


def main():
    script = pathlib.Path(__file__).with_name("machinery.py")
    programs = os.environ["STRAIT_BIN"]
    command = [sys.executable, "-B", script, "--quick", "--bin", programs]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="\n")
    missing = [words for words in EXPECTED if words not in done.stdout]
    if done.returncode != 0 or missing:
        sys.exit(f"ended with {done.returncode}, without: {missing}")


if __name__ == "__main__":
    main()
