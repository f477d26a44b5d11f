"""The quality bench from end to end on a tiny model: a cell of each raw codec and one that
compresses, the table, and that finished cells stay finished. Quality is not judged here."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import tasks

SETTING = "delta 4/4, first 5"


def bench(folder, *words):
    script = pathlib.Path(__file__).with_name("quality.py")
    command = [sys.executable, "-B", script, "--folder", folder, "--small", "--seeds", "1"]
    command += ["--tasks", "english", "--english", folder / "text.txt"]
    command += ["--only", "raw bf16", SETTING, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    if done.returncode != 0:
        sys.exit(f"ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def main():
    if "STRAIT_BIN" not in os.environ:
        print("skipped: STRAIT_BIN is not set")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="strait-quality-") as name:
        folder = pathlib.Path(name)
        draw = random.Random(1)
        text = " ".join(draw.choice(tasks.WORDS) for _ in range(12000))
        (folder / "text.txt").write_text(text)

        out = bench(folder)
        print(out)
        cells = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
        losses = {cell["setting"]: cell["loss"] for cell in cells}
        assert list(losses) == ["raw fp32", "raw bf16", SETTING], losses
        assert all(3 < loss < 5.6 for loss in losses.values()), losses
        assert losses["raw fp32"] != losses["raw bf16"] != losses[SETTING], losses
        row = next(line for line in out.splitlines() if line.startswith(f"| {SETTING} |"))
        ratio = float(row.split("|")[6])
        assert 2.5 < ratio < 4, row

        again = bench(folder)
        assert "seed 1:" not in again, again
        assert row in again, again


if __name__ == "__main__":
    main()
