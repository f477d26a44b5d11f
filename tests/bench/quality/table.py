"""Finished cells of codecs as Markdown."""

import statistics

import cells
import settings
import task_cells


def sent(cell):
    return sum(cell["bytes_forward"]) + sum(cell["bytes_backward"])


def saving(task, setting):
    """Bytes of bfloat16 by bytes: the same rows in another order, so alike with every seed."""
    half = task.settings.get(settings.BF16, {})
    mine = task.settings.get(setting, {})
    if not half or not mine:
        return ""
    ours, theirs = (statistics.mean(map(sent, them.values())) for them in (mine, half))
    return f"{theirs / ours:.2f}"


def saving_when_wide(bench, setting):
    if "auto" in settings.SETTINGS[setting].values():
        return ""  # depends on what it will measure
    rate = 1e-3  # which bytes do not depend on
    half = bench.planned_bytes(settings.recipe(settings.BF16, rate))
    return f"{half / bench.planned_bytes(settings.recipe(setting, rate)):.2f}"


def markdown(bench):
    done = bench.cells()
    tasks = task_cells.by_name(done, settings.RAW)
    columns = ["forward/backward bits", *task_cells.loss_columns(tasks)]
    columns += ["exact answers, %", "bf16 bytes ÷ bytes", f"at width {cells.WIDE}"]
    columns += [f"s at {width} Mbit/s" for width in cells.SLOW_LINKS]
    rows = []
    for setting in settings.SETTINGS:
        having = [task for task in tasks.values() if setting in task.settings]
        if not having:
            continue
        row = [setting, *(task.loss(setting) for task in tasks.values())]
        row.append(task_cells.answers(tasks, setting))
        row.append(saving(having[0], setting))
        row.append(saving_when_wide(bench, setting))
        first = next(iter(having[0].settings[setting].values()))
        row += [f"{bench.forecast(first, width):.1f}" for width in cells.SLOW_LINKS]
        rows.append(row)
    return task_cells.markdown_table(columns, rows)
