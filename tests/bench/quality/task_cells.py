"""What the finished cells of one task say."""

import statistics

import cells

EXACT = "instructions"  # the task whose answers are right or wrong


def mean_and_spread(values, form):
    """"2.4470 ± 0.0012 (3)": how many, where it is more than one."""
    text = format(statistics.mean(values), form)
    if len(values) < 2:
        return text
    return f"{text} ± {format(statistics.stdev(values), form.lstrip('+'))} ({len(values)})"


class TaskCells:
    """The cells of one task, as setting -> seed -> cell."""

    def __init__(self, name, done, reference):
        self.name = name
        self.reference = reference
        self.settings = {}
        for (task, setting, seed), cell in done.items():
            if task == name:
                self.settings.setdefault(setting, {})[seed] = cell

    def changes(self, setting):
        """What each seed's loss is above the reference's, in percent."""
        mine = self.settings.get(setting, {})
        theirs = self.settings.get(self.reference, {})
        return [100 * (mine[seed]["loss"] / theirs[seed]["loss"] - 1) for seed in sorted(mine.keys() & theirs.keys())]

    def loss(self, setting):
        """Of the reference the loss itself; of others what it is above that in percent, paired by
        seed. A loss near zero is no measure for others: the instructions have their own
        everywhere."""
        mine = self.settings.get(setting, {})
        if mine and (setting == self.reference or self.name == EXACT):
            return mean_and_spread([cell["loss"] for cell in mine.values()], ".4f")
        change = self.changes(setting)
        skipped = sum(cell["skipped"] for cell in mine.values())
        if not change:
            return ""
        return mean_and_spread(change, "+.2f") + (f", {skipped} steps skipped" if skipped else "")

    def accuracy(self, setting):
        shares = [cell["accuracy"] for cell in self.settings.get(setting, {}).values()]
        if not shares or None in shares:
            return ""
        return mean_and_spread([100 * value for value in shares], ".1f")


def by_name(done, reference):
    """The tasks that have cells, multiples of their learning rates behind them."""
    names = sorted({task for task, _, _ in done}, key=cells.split_variant)
    return {name: TaskCells(name, done, reference) for name in names}


def answers(tasks, setting):
    return tasks[EXACT].accuracy(setting) if EXACT in tasks else ""


def loss_columns(tasks):
    return [f"{name}: loss" + ("" if name == EXACT else ", % above") for name in tasks]


def markdown_table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(["", *lines, ""])
