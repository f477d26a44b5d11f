"""What codecs, or ways of keeping replicas together, do to a model's quality. See README.md here.

usage: quality.py --folder FOLDER [--replicas | --adapters | --optimizers] [--bin FOLDER] [--budget MINUTES] [--seeds 3]
                  [--english FILE] [--only SETTING ...] [--tasks TASK ...] [--rows N] [--records N]
                  [--epochs N] [--batch N] [--width N] [--pretrain-steps N] [--replica-count N] [--rates X ...] [--table]
       quality.py --folder FOLDER --model FOLDER --train FILE --eval FILE [--row 512] [--learning-rate 1e-4] ...

The latter is about your own model and data, the task "own"; data may be what data.train takes.
"""

import argparse
import fcntl
import functools
import itertools
import json
import os
import pathlib
import sys
import time

import adapter_settings
import adapter_table
import cells
import optimizer_settings
import replica_settings
import replica_table
import settings
import table
import tasks

SIZES = {
    "rows": "of a text to train on", "records": "of the instructions to train on", "epochs": "over either",
    "batch": "rows of a step", "replica_count": "with --replicas", "width": "of the model",
    "pretrain_steps": "of the model on the other text",
}


def options_of(words):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True, help="keeps finished cells: call again to go on")
    parser.add_argument("--replicas", action="store_true", help="compare syncs and not codecs")
    parser.add_argument("--adapters", action="store_true", help="compare bases of adapters")
    parser.add_argument("--optimizers", action="store_true", help="compare states of optimizers")
    parser.add_argument("--bin", default=os.environ.get("STRAIT_BIN", "build/release/bin"))
    parser.add_argument("--budget", type=float, default=1e9, help="minutes; begins no cell after")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--english", help="a plain text file in place of the bible packages")
    parser.add_argument("--only", nargs="*", help="settings; the reference is always among them")
    parser.add_argument("--tasks", nargs="*", choices=cells.TASKS, default=list(cells.TASKS))
    for name, what in SIZES.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=int, help=f"{what}; a folder has one number")
    parser.add_argument("--model", type=pathlib.Path, help="your own: a Hugging Face directory")
    parser.add_argument("--train", type=pathlib.Path, help="your own data")
    parser.add_argument("--eval", type=pathlib.Path, help="your own data to evaluate on")
    parser.add_argument("--row", type=int, default=512, help="tokens of a row of your own data")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="for your own model")
    parser.add_argument("--rates", nargs="*", type=float, default=[1], help="multiples of the tasks' learning rates")
    parser.add_argument("--small", action="store_true", help="shows only that it works")
    parser.add_argument("--table", action="store_true", help="run nothing, print what there is")
    options = parser.parse_args(words)
    if options.model:
        if not options.train or not options.eval:
            parser.error("--model needs --train and --eval")
        options.tasks = [cells.OWN]
    options.compared, options.markdown = settings, table.markdown
    if options.replicas:
        options.compared, options.markdown = replica_settings, replica_table.markdown
    for chosen, compared in [(options.adapters, adapter_settings), (options.optimizers, optimizer_settings)]:
        if chosen:
            options.compared = compared
            options.markdown = functools.partial(adapter_table.markdown, compared=compared)
    known = options.compared.SETTINGS
    unknown = set(options.only or []) - set(known)
    if unknown:
        parser.error(f"no such setting: {unknown}; there are: {', '.join(known)}")
    return options


def available(bench, names):
    found = []
    for task in names:
        try:
            bench.prepare(task)
            found.append(task)
        except tasks.Unavailable as reason:
            print(f"{task}: left out: {reason}", flush=True)
    return found


def run_cells(bench, options):
    """Whole rounds, so that whatever the budget allows can be compared. False: time was up."""
    deadline = time.monotonic() + 60 * options.budget
    done = bench.cells()
    compared = options.compared
    chosen = [name for name in compared.SETTINGS if not options.only or name in options.only or name == compared.RAW]
    names = available(bench, options.tasks)
    print(f"tasks: {', '.join(names) or 'none'}", flush=True)
    seeds = range(1, options.seeds + 1)
    for seed, rate, setting, name in itertools.product(seeds, options.rates, chosen, names):
        task = cells.variant(name, rate)
        if (task, setting, seed) in done:
            continue
        if time.monotonic() > deadline:
            return False
        keys = compared.recipe(setting, rate * bench.sizes.learning_rates[name])
        if options.replicas:
            keys["pipeline.replicas"] = bench.sizes.replica_count
        cell = bench.measure(task, setting, seed, keys)
        result = f"loss {cell['loss']:.5f}, {cell['seconds']:.0f} s"
        print(f"{task}, {setting}, seed {seed}: {result}", flush=True)
    return True


def bench_of(options):
    sizes = cells.SmallSizes() if options.small else cells.Sizes()
    for name in SIZES:
        if getattr(options, name):
            setattr(sizes, name, getattr(options, name))
    folder, binaries = pathlib.Path(options.folder).resolve(), pathlib.Path(options.bin).resolve()
    own = None
    if options.model:
        config = json.loads((options.model / "config.json").read_text())
        sizes.width = config.get("hidden_size") or config["n_embd"]
        sizes.learning_rates = {cells.OWN: options.learning_rate}
        files = {"model.path": options.model, "data.train": options.train, "data.eval": options.eval}
        own = {key: str(file.resolve()) for key, file in files.items()}
        own |= {"data.tokenizer": None, "data.row": options.row}
    return cells.Bench(folder, binaries, sizes, options.english, own)


def main(words=None):
    options = options_of(words)
    bench = bench_of(options)
    if options.table:
        finished = True
    else:
        with open(bench.folder / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return f"another quality.py works in {bench.folder}: wait, or name another --folder"
            finished = run_cells(bench, options)
    print(options.markdown(bench))
    if not finished:
        print("time is up: call again with the same --folder to go on")
    return None


if __name__ == "__main__":
    sys.exit(main())
