"""The committed data files are what their script makes, and nothing of the evaluation was trained on."""

import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "recipes" / "data"


def completions(name):
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["completion"] for line in lines]


def main():
    subprocess.run([sys.executable, FOLDER / "make_dates.py", "--check"], check=True)
    train, evaluation = completions("dates.jsonl"), completions("dates-eval.jsonl")
    assert len(train) > len(evaluation) > 0, (len(train), len(evaluation))
    shared = set(train) & set(evaluation)
    assert not shared, f"in both files: {sorted(shared)[:5]}"


if __name__ == "__main__":
    main()
