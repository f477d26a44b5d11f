"""Finished cells of replicas as Markdown."""

import json

import cells
import replica_settings
import task_cells


def ratio_when_wide(bench, sync):
    """Bytes a step as the program plans them."""
    recipe = replica_settings.Setting(sync).recipe(1e-3) | {"pipeline.replicas": bench.sizes.replica_count}
    offers = bench.plan_when_wide(recipe)["sync_offers"]
    step_bytes = {offer["method"]: offer["step_bytes"] for offer in offers}
    return step_bytes["allreduce"] / 2 / step_bytes[sync["method"]]  # that is in float32


def traffic(cell):
    """Bytes a step of one replica, and what a ring all-reduce in 16 bits would send by these: by
    those of rounds, and by all."""
    senders = cell["steps"] * cell["keys"]["pipeline.replicas"]
    ring, rounds, all_sent = (cell[f"bytes_{what}"] for what in ("half_ring", "rounds", "sync"))
    return [f"{rounds / senders / 1e3:.1f} kB", f"{ring / rounds:.1f}", f"{ring / all_sent:.1f}"]


def markdown(bench):
    done = bench.cells()
    reference = replica_settings.RAW
    tasks = task_cells.by_name(done, reference)
    columns = ["sync", *task_cells.loss_columns(tasks), "exact answers, %", "bytes a step"]
    columns += ["fp16 ring ÷ bytes", "÷ with votes", f"at width {cells.WIDE}"]
    rows = []
    wide = {}
    for setting in replica_settings.SETTINGS:
        having = [task for task in tasks.values() if setting in task.settings]
        if not having:
            continue
        row = [setting, *(task.loss(setting) for task in tasks.values())]
        row.append(task_cells.answers(tasks, setting))
        row += traffic(next(iter(having[0].settings[setting].values())))
        sync = replica_settings.SETTINGS[setting].sync
        key = json.dumps(sync)  # rates do not matter
        if key not in wide:
            wide[key] = f"{ratio_when_wide(bench, sync):.1f}"
        row.append(wide[key])
        rows.append(row)
    return task_cells.markdown_table(columns, rows)
