"""Quality, bytes and seconds of the codecs between stages and of the sync methods between replicas, in one table. See
README.md here.

usage: yardstick.py --folder FOLDER [--page FILE] [--table] [--quick] [words of quality.py: --budget, --seeds, --tasks,
                    or --model, --train and --eval for your own model and data]

Runs quality.py twice in the folder, which keeps finished cells; --table runs nothing. --page: the table as a page;
docs/yardstick.md is one. --quick: a few settings on a tiny model, which shows only that it works.
"""

import argparse
import itertools
import os
import pathlib
import platform
import statistics
import sys
import textwrap

import cells
import quality
import replica_settings
import settings
import task_cells

WIDTHS = (100, 500, 1000)  # Mbit/s
ACCEPTED = (0, 0.1, 1, 3)  # % of the loss
REPLICAS = 2

CODECS = [settings.RAW, settings.BF16, "fixed 4/8", "delta 6/6, first 8", "delta 4/8, first 8", "delta 4/5, first 8",
          "delta 2/4, first 8", "transform 6/6, first 6", "transform 4/5, first 6", "auto"]
SYNCS = [replica_settings.RAW, "bytegrad", "powersgd rank 4", "onebit_adam", "cocktail .1/.2/4", "diloco every 20",
         "streaming_diloco every 20, 2 fragments", "noloco every 20"]


QUICK = {settings.RAW, settings.BF16, replica_settings.RAW, "cocktail .1/.2/4"}


def seconds_of_codec(bench, cell, width):
    return bench.forecast(cell, width)


def seconds_of_sync(bench, cell, width):
    """Of the program's forecast for lines of that width, with the speed of compute that it assumes."""
    recipe = bench.recipe("forecast", 1) | cell["inputs"] | cell["keys"]
    recipe |= {"train.epochs": bench.sizes.epochs, "hosts.link_megabits": width}
    plan = bench.plan(recipe)
    offer = next(one for one in plan["sync_offers"] if one["method"] == plan["sync_method"])
    return plan["steps"] * offer["step_seconds"]


def bytes_of_codec(cell):
    sent = sum(cell["bytes_forward"]) + sum(cell["bytes_backward"])
    return sent / cell["steps"] / (cells.STAGES - 1)


def bytes_of_sync(cell):
    return cell["bytes_sync"] / cell["steps"] / cell["keys"]["pipeline.replicas"]


class Comparison:
    """One table: its settings, and the fastest of them at each width."""

    def __init__(self, bench, title, names, reference, sent, seconds):
        found = task_cells.by_name(bench.cells(), reference)
        self.tasks = {name: task for name, task in found.items() if reference in task.settings}
        self.title, self.reference, self.sent, self.seconds = title, reference, sent, {}
        for name in names:
            for task, one in self.tasks.items():
                if name not in one.settings or name in self.seconds:
                    continue
                cell = next(iter(one.settings[name].values())) | {"inputs": bench.inputs_of(task)}
                self.seconds[name] = [seconds(bench, cell, width) for width in WIDTHS]

    def markdown(self):
        rows = []
        for name, seconds in self.seconds.items():
            by_seed = next(one.settings[name] for one in self.tasks.values() if name in one.settings)
            sent = statistics.mean(map(self.sent, by_seed.values()))
            rows.append([name, *(one.loss(name) for one in self.tasks.values()), f"{sent / 1e3:.1f} kB",
                         *(f"{one:.1f}" for one in seconds)])
        columns = [self.title, *(f"{task}: loss, % above {self.reference}" for task in self.tasks), "sent a step"]
        columns += [f"s at {WIDTHS[0]} Mbit/s", *(f"at {width}" for width in WIDTHS[1:])]
        return task_cells.markdown_table(columns, rows) if rows else ""

    def cost(self, name):
        """The mean change of loss, as it is shown, in the task where it is largest."""
        changes = [one.changes(name) for one in self.tasks.values() if one.name != task_cells.EXACT]
        return max((round(statistics.mean(change), 2) for change in changes if change), default=float("inf"))

    def choices(self):
        """The fastest setting at each width, for each loss that may be accepted, unless a smaller one allows it, too."""
        rows, before = [], None
        for most in ACCEPTED:
            names = [name for name in self.seconds if self.cost(name) <= most]
            best = [min(names, key=lambda name: self.seconds[name][at]) for at in range(len(WIDTHS))] if names else []
            if best != before:
                for name, group in itertools.groupby(range(len(best)), key=lambda at: best[at]):
                    at = list(group)
                    rows.append([f"{most:g} %", ", ".join(str(WIDTHS[one]) for one in at), name,
                                 ", ".join(f"{self.seconds[name][one]:.1f}" for one in at)])
            before = best
        columns = [f"{self.title}: loss at most", "at Mbit/s", "fastest", "s"]
        return task_cells.markdown_table(columns, rows) if rows else ""


def comparisons(bench):
    return [Comparison(bench, "between stages", CODECS, settings.RAW, bytes_of_codec, seconds_of_codec),
            Comparison(bench, "between replicas", SYNCS, replica_settings.RAW, bytes_of_sync, seconds_of_sync)]


def trained(bench):
    """What the runs do, as the start of a sentence."""
    if bench.own:
        return f"`{bench.own['model.path']}` is fine-tuned on `{bench.own['data.train']}`"
    sizes = bench.sizes
    return (f"A GPT-2 of {sizes.layers} layers, width {sizes.width}, trained before on another text, is fine-tuned on "
            f"{sizes.rows} rows of {bench.row} bytes")


def page(bench, words):
    compared = comparisons(bench)
    command = f".venv/bin/python tests/bench/quality/yardstick.py {' '.join(words)} --page FILE"
    command = " \\\n        ".join(textwrap.wrap(command, 110, break_long_words=False, break_on_hyphens=False))
    return f"""# Codecs and sync methods compared

Made by one command, which goes on where it stopped; run it again on your machine:

    {command}

With `--model FOLDER --train FILE --eval FILE` it compares them on your own model and data.

{textwrap.fill(f"{trained(bench)} by the real program, {bench.sizes.epochs} epochs, over {cells.STAGES} stages, or as "
               f"{bench.sizes.replica_count} replicas of one stage, on {os.cpu_count()} cores, {platform.machine()}.", 118)}
Losses are those of the evaluation, paired by seed: mean ± standard deviation (seeds); of the first row the loss itself.
Bytes are what a boundary carries in both directions, or what a replica sends, in one step.

**Seconds are forecasts, not measured**: of the whole run, on links of that width; of boundaries by the simulator, with
stages at the pace of GPT2-XL's; of replicas by `strait plan`, with a speed of compute that it assumes. What the columns
leave out is in [its page](../tests/bench/quality/README.md).
{"".join(one.markdown() for one in compared)}
**Which one.** The fastest of them whose mean loss is at most that much above the first row:
{"".join(one.choices() for one in compared)}
Longer runs at a high learning rate cost more ([compression](compression.md#which-one)). All train at one learning rate;
methods whose replicas take steps alone may want a higher one ([replicas](replicas.md)).
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options, words = parser.parse_known_args()
    words += ["--folder", options.folder]
    if "--replica-count" not in words:
        words += ["--replica-count", str(REPLICAS)]
    if options.quick:
        words += ["--small", "--seeds", "2"]
    if not options.table:
        for which, names in ([], CODECS), (["--replicas"], SYNCS):
            chosen = [name for name in names if not options.quick or name in QUICK]
            only = [] if "--only" in words else ["--only", *chosen]
            if failed := quality.main([*words, *only, *which]):
                return failed
    chosen = quality.options_of(words)
    text = page(quality.bench_of(chosen), words)
    if options.page:
        options.page.write_text(text)
    print(text)
    return None


if __name__ == "__main__":
    sys.exit(main())
