"""The bench of replicas on a narrow link runs from end to end on a tiny model. Times are not judged."""

import os
import pathlib
import subprocess
import sys

EXPECTED = ["a step without sync", "cocktail", "powersgd"]


def main():
    script = pathlib.Path(__file__).with_name("replica_links.py")
    command = [sys.executable, "-B", script, "--quick", "--bin", os.environ["STRAIT_BIN"]]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="\n")
    if done.returncode == 77:
        sys.exit(77)
    missing = [words for words in EXPECTED if words not in done.stdout]
    if done.returncode != 0 or missing:
        sys.exit(f"ended with {done.returncode}, without: {missing}")


if __name__ == "__main__":
    main()
