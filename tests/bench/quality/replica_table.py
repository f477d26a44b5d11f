"""Finished cells of replicas as Markdown."""

import cells
import replica_settings
import task_cells


def ratio_when_wide(bench, setting):
    """Bytes a step as the program plans them; one stage, because codecs change nothing here."""
    offers = {}
    for name in (replica_settings.RAW, setting):
        recipe = replica_settings.recipe(name, 1e-3)
        recipe = {key: value for key, value in recipe.items() if not key.startswith("codec.")}
        plan = bench.plan_when_wide(recipe | {"pipeline.stages": 1})
        method = recipe["sync.method"]
        offers[name] = next(o for o in plan["sync_offers"] if o["method"] == method)["step_bytes"]
    return offers[replica_settings.RAW] / 2 / offers[setting]


def traffic(cell):
    """Bytes a step of one replica, and what a ring all-reduce in 16 bits would send by these: by
    those of rounds, and by all."""
    senders = cell["steps"] * replica_settings.REPLICAS
    ring, rounds, all_sent = (cell[f"bytes_{what}"] for what in ("half_ring", "rounds", "sync"))
    return [f"{rounds / senders / 1e3:.1f} kB", f"{ring / rounds:.1f}", f"{ring / all_sent:.1f}"]


def markdown(bench):
    done = bench.cells()
    reference = replica_settings.RAW
    tasks = {name: task_cells.TaskCells(name, done, reference) for name in cells.TASKS}
    columns = ["sync", *task_cells.loss_columns(tasks), "exact answers, %", "bytes a step"]
    columns += ["fp16 ring ÷ bytes", "÷ with votes", f"at width {cells.WIDE}"]
    rows = []
    for setting in replica_settings.SETTINGS:
        having = [task for task in tasks.values() if setting in task.settings]
        if not having:
            continue
        row = [setting, *(task.loss(setting) for task in tasks.values())]
        row.append(tasks[task_cells.EXACT].accuracy(setting))
        row += traffic(next(iter(having[0].settings[setting].values())))
        row.append(f"{ratio_when_wide(bench, setting):.1f}")
        rows.append(row)
    return task_cells.markdown_table(columns, rows)
