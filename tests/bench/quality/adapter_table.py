"""Finished cells of adapters, or of optimizers, as Markdown."""

import task_cells


def markdown(bench, compared):
    tasks = task_cells.by_name(bench.cells(), compared.RAW)
    columns = ["training", *task_cells.loss_columns(tasks), "exact answers, %"]
    rows = []
    for setting in compared.SETTINGS:
        losses = [task.loss(setting) for task in tasks.values()]
        if any(losses):
            rows.append([setting, *losses, task_cells.answers(tasks, setting)])
    return task_cells.markdown_table(columns, rows)
