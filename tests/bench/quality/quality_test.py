"""The quality bench from end to end on a tiny model: a cell of each raw codec and one that
compresses, the table, and that finished cells stay finished; the yardstick's page, which has replicas, too. With
STRAIT_CAMPAIGNS=1 (`./strait test --all`) how far gradients move, the tables of replicas and adapters, and a yardstick
of other data. Quality is not judged here."""

import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import tasks
import yardstick as yardstick_settings

CODECS = ["raw bf16", "delta 4/4, first 5"]
SYNCS = ["cocktail .1/.2/4"]
BASES = ["LoRA, nf4 base"]


def bench(folder, only, *words):
    script = pathlib.Path(__file__).with_name("quality.py")
    command = [sys.executable, "-B", script, "--folder", folder, "--small", "--seeds", "1"]
    command += ["--tasks", "english", "--english", folder / "text.txt"]
    command += ["--only", *only, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    if done.returncode != 0:
        sys.exit(f"ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def cells_of(folder, settings):
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    cells = {line["setting"]: line for line in lines if line["setting"] in settings}
    assert list(cells) == settings, cells
    assert all(3 < cell["loss"] < 5.6 for cell in cells.values()), cells
    return cells


def columns_of(table, setting):
    """The row's text, and what stands in it."""
    row = next(line for line in table.splitlines() if line.startswith(f"| {setting} |"))
    return row, [column.strip() for column in row.split("|")[1:-1]]


def codecs(folder):
    out = bench(folder, CODECS)
    print(out)
    raw, bf16, delta = cells_of(folder, ["raw fp32", *CODECS]).values()
    assert raw["loss"] != bf16["loss"] != delta["loss"]
    row, columns = columns_of(out, CODECS[-1])
    assert 2.5 < float(columns[3]) < 4, row

    again = bench(folder, CODECS)
    assert "seed 1:" not in again, again
    assert row in again, again


def gradients(folder):
    """At a rate of nothing a sample has the gradient that it had."""
    script = pathlib.Path(__file__).with_name("gradient_change.py")
    command = [sys.executable, "-B", script, "--folder", folder, "--model", "model-code"]
    command += ["--rows", "english", "--rates", "0", "1e-2", "--epochs", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 77:
        print(done.stdout)
        return
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()[2:]]
    assert [row[2].strip() for row in rows] == ["0", "1", "2"] * 2, done.stdout
    for rate, _, _, _, activation, gradient, _, square, _ in rows:
        moved = float(rate) > 0
        assert (float(activation) > 0.05) == (float(gradient) > 0.05) == moved, done.stdout
        assert 0.2 < float(square) < 20, done.stdout


def replicas(folder):
    out = bench(folder, SYNCS, "--replicas")
    print(out)
    exact, cocktail = cells_of(folder, ["allreduce", *SYNCS]).values()
    assert cocktail["loss"] != exact["loss"]
    row, columns = columns_of(out, "allreduce")
    assert 0.45 < float(columns[4]) < 0.51, row  # of float32 against 16 bits
    row, columns = columns_of(out, SYNCS[0])
    assert 50 < float(columns[4]) < 200, row
    assert 100 < float(columns[6]) < 140, row


def adapters(folder):
    out = bench(folder, BASES, "--adapters")
    print(out)
    plain, nf4 = cells_of(folder, ["LoRA, float32 base", *BASES]).values()
    assert 0 < abs(nf4["loss"] / plain["loss"] - 1) < 0.05, (nf4, plain)


def yardstick(folder):
    """A few settings with two seeds, some of whose cells are there; and the page of docs/ has all settings."""
    yardstick_page(folder, "--tasks", "english", "--english", folder / "text.txt")
    committed = (pathlib.Path(__file__).parents[3] / "docs/yardstick.md").read_text()
    for setting in yardstick_settings.CODECS + yardstick_settings.SYNCS:
        _, columns = columns_of(committed, setting)
        assert "(2)" in columns[1], columns


def own_yardstick(folder):
    """A model and data of one's own."""
    own = folder / "own"
    own.mkdir()
    data = {"--model": folder / "model-code", "--train": folder / "text.txt", "--eval": folder / "text.txt"}
    text = yardstick_page(own, *itertools.chain(*data.items()), "--row", "64", "--epochs", "1", "--batch", "64")
    assert f"`{data['--model']}` is fine-tuned on `{data['--train']}`" in text, text
    cells_of(own, ["raw fp32", "raw bf16", "allreduce", SYNCS[0]])


def yardstick_page(folder, *words):
    script = pathlib.Path(__file__).with_name("yardstick.py")
    page = folder / "page.md"
    command = [sys.executable, "-B", script, "--folder", folder, "--quick", "--page", page, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    print(text)
    for setting in "raw fp32", "raw bf16", "allreduce", SYNCS[0]:
        row, columns = columns_of(text, setting)
        assert "(2)" in columns[1], row
        narrow, middle, wide = map(float, columns[3:])
        assert narrow >= middle >= wide > 0, row
    return text


def main():
    if "STRAIT_BIN" not in os.environ:
        print("skipped: STRAIT_BIN is not set")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="strait-quality-") as name:
        folder = pathlib.Path(name)
        draw = random.Random(1)
        text = " ".join(draw.choice(tasks.WORDS) for _ in range(12000))
        (folder / "text.txt").write_text(text)
        codecs(folder)
        yardstick(folder)
        if os.environ.get("STRAIT_CAMPAIGNS"):
            for tables in (gradients, replicas, adapters, own_yardstick):
                tables(folder)


if __name__ == "__main__":
    main()
