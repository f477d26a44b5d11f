"""Quality, bytes and seconds of the codecs between stages and of the sync methods between replicas, in one table. See
README.md here.

usage: yardstick.py --folder FOLDER [--page FILE] [--table] [--quick] [words of quality.py: --budget, --seeds, --tasks]

Runs quality.py twice in the folder, which keeps finished cells; --table runs nothing. --page: the table as a page;
docs/yardstick.md is one. --quick: a few settings on a tiny model, which shows only that it works.
"""

import argparse
import pathlib
import statistics
import sys

import cells
import quality
import replica_settings
import settings
import task_cells

WIDTHS = (100, 500, 1000)  # Mbit/s

CODECS = [settings.RAW, settings.BF16, "fixed 4/8", "delta 6/6, first 8", "delta 4/8, first 8", "delta 4/5, first 8",
          "delta 2/4, first 8", "transform 6/6, first 6", "transform 4/5, first 6", "auto"]
SYNCS = [replica_settings.RAW, "bytegrad", "powersgd rank 4", "onebit_adam", "cocktail .1/.2/4", "diloco every 20",
         "streaming_diloco every 20, 2 fragments", "noloco every 20"]


QUICK = {settings.RAW, settings.BF16, replica_settings.RAW, "cocktail .1/.2/4"}


def seconds_of_codec(bench, cell, width):
    return bench.forecast(cell, width)


def seconds_of_sync(bench, cell, width):
    """Of the program's forecast for lines of that width, with the speed of compute that it assumes."""
    recipe = bench.recipe("forecast", 1, cell["data"], cell["model"]) | cell["keys"]
    recipe |= {"train.epochs": bench.sizes.epochs, "hosts.link_megabits": width}
    plan = bench.plan(recipe)
    offer = next(one for one in plan["sync_offers"] if one["method"] == plan["sync_method"])
    return plan["steps"] * offer["step_seconds"]


def bytes_of_codec(cell):
    sent = sum(cell["bytes_forward"]) + sum(cell["bytes_backward"])
    return sent / cell["steps"] / (cells.STAGES - 1)


def bytes_of_sync(cell):
    return cell["bytes_sync"] / cell["steps"] / replica_settings.REPLICAS


def rows_of(bench, names, reference, sent, seconds):
    tasks = task_cells.by_name(bench.cells(), reference)
    tasks = {name: task for name, task in tasks.items() if reference in task.settings}
    rows = []
    for name in names:
        having = [(task, one.settings[name]) for task, one in tasks.items() if name in one.settings]
        if not having:
            continue
        task, by_seed = having[0]
        mean = statistics.mean(map(sent, by_seed.values()))
        first = next(iter(by_seed.values())) | bench.inputs_of(task)
        rows.append([name, *(one.loss(name) for one in tasks.values()), f"{mean / 1e3:.1f} kB",
                     *(f"{seconds(bench, first, width):.1f}" for width in WIDTHS)])
    return list(tasks), rows


def table(bench, title, names, reference, sent, seconds):
    tasks, rows = rows_of(bench, names, reference, sent, seconds)
    columns = [title, *(f"{task}: loss, % above {reference}" for task in tasks), "sent a step"]
    columns += [f"s at {width} Mbit/s" for width in WIDTHS]
    return task_cells.markdown_table(columns, rows) if rows else ""


def markdown(bench):
    return (table(bench, "between stages", CODECS, settings.RAW, bytes_of_codec, seconds_of_codec)
            + table(bench, "between replicas", SYNCS, replica_settings.RAW, bytes_of_sync, seconds_of_sync))


def page(bench, seeds, task_names):
    sizes = bench.sizes
    has_syncs = any(setting in SYNCS for _, setting, _ in bench.cells())
    without = "" if has_syncs else "\nThe sync methods have no cells here yet; what they cost is in [replicas](replicas.md).\n"
    return f"""# Codecs and sync methods compared

Made by one command, which goes on where it stopped; run it again on your machine:

    .venv/bin/python tests/bench/quality/yardstick.py --folder build/quality --seeds {seeds} --tasks {" ".join(task_names)} \\
        --page docs/yardstick.md

A GPT-2 of {sizes.layers} layers, width {sizes.width}, trained before on another text, is fine-tuned by the real program
for {sizes.epochs} epochs of {sizes.rows} rows of 128 bytes, over four stages, or as four replicas of one stage. Losses are
those of the evaluation, paired by seed: mean ± standard deviation (seeds); of the first row the loss itself. Bytes are
what a boundary carries in both directions, or what a replica sends, in one step.

**Seconds are forecasts, not measured**: of the whole run, on links of that width; of boundaries by the simulator, with
stages at the pace of GPT2-XL's; of replicas by `strait plan`, with a speed of compute that it assumes. What the columns
leave out is in [its page](../tests/bench/quality/README.md).
{markdown(bench)}{without}
The model is small: its differences in percent are what to compare, and longer runs cost more
([compression](compression.md#which-one)).
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options, words = parser.parse_known_args()
    words += ["--folder", options.folder]
    if options.quick:
        words += ["--small", "--seeds", "2"]
    if not options.table:
        for which, names in ([], CODECS), (["--replicas"], SYNCS):
            chosen = [name for name in names if not options.quick or name in QUICK]
            only = [] if "--only" in words else ["--only", *chosen]
            if failed := quality.main([*words, *only, *which]):
                return failed
    chosen = quality.options_of(words)
    text = page(quality.bench_of(chosen), chosen.seeds, chosen.tasks)
    if options.page:
        options.page.write_text(text)
    print(text)
    return None


if __name__ == "__main__":
    sys.exit(main())
