"""Finished cells as Markdown."""

import statistics

import cells
import settings

EXACT = "instructions"  # the task whose answers are right or wrong


def mean_and_spread(values, form):
    """"2.4470 ± 0.0012 (3)": how many, where it is more than one."""
    text = format(statistics.mean(values), form)
    if len(values) < 2:
        return text
    return f"{text} ± {format(statistics.stdev(values), form.lstrip('+'))} ({len(values)})"


def sent(cell):
    return sum(cell["bytes_forward"]) + sum(cell["bytes_backward"])


class Task:
    """The cells of one task, as setting -> seed -> cell."""

    def __init__(self, name, done):
        self.name = name
        self.settings = {}
        for (task, setting, seed), cell in done.items():
            if task == name:
                self.settings.setdefault(setting, {})[seed] = cell

    def loss(self, setting):
        """Of the raw one the loss itself; of others what it is above raw, paired by seed. A loss
        near zero is no measure for others: the instructions have their own everywhere."""
        mine, raw = self.settings.get(setting, {}), self.settings.get(settings.RAW, {})
        if mine and (setting == settings.RAW or self.name == EXACT):
            return mean_and_spread([cell["loss"] for cell in mine.values()], ".4f")
        shared = sorted(mine.keys() & raw.keys())
        change = [100 * (mine[seed]["loss"] / raw[seed]["loss"] - 1) for seed in shared]
        skipped = sum(cell["skipped"] for cell in mine.values())
        if not change:
            return ""
        return mean_and_spread(change, "+.2f") + (f", {skipped} steps skipped" if skipped else "")

    def accuracy(self, setting):
        told = [cell["accuracy"] for cell in self.settings.get(setting, {}).values()]
        if not told or None in told:
            return ""
        return mean_and_spread([100 * value for value in told], ".1f")

    def saving(self, setting):
        """Bytes of bfloat16 by bytes: the same rows in another order, so alike with every seed."""
        half = self.settings.get(settings.BF16, {})
        mine = self.settings.get(setting, {})
        if not half or not mine:
            return ""
        ours, theirs = (statistics.mean(map(sent, them.values())) for them in (mine, half))
        return f"{theirs / ours:.2f}"


def saving_when_wide(bench, setting):
    codec = settings.SETTINGS[setting]
    if "auto" in codec.values():
        return ""  # depends on what it will measure
    half = bench.planned_bytes(settings.SETTINGS[settings.BF16])
    return f"{half / bench.planned_bytes(codec):.2f}"


def markdown(bench):
    done = bench.cells()
    tasks = {name: Task(name, done) for name in cells.TASKS}
    columns = ["forward/backward bits"]
    columns += [f"{name}: loss" + ("" if name == EXACT else ", % above") for name in tasks]
    columns += ["exact answers, %", "bf16 bytes ÷ bytes", f"at width {cells.WIDE}"]
    columns += [f"s at {width} Mbit/s" for width in cells.SLOW_LINKS]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for setting in settings.SETTINGS:
        having = [task for task in tasks.values() if setting in task.settings]
        if not having:
            continue
        row = [setting, *(task.loss(setting) for task in tasks.values())]
        row += [tasks[EXACT].accuracy(setting), having[0].saving(setting)]
        row.append(saving_when_wide(bench, setting))
        first = next(iter(having[0].settings[setting].values()))
        row += [f"{bench.forecast(first, width):.1f}" for width in cells.SLOW_LINKS]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(["", *lines, ""])
