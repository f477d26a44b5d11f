"""Finished cells of adapters as Markdown."""

import adapter_settings
import task_cells


def markdown(bench):
    tasks = task_cells.by_name(bench.cells(), adapter_settings.RAW)
    columns = ["base", *task_cells.loss_columns(tasks), "exact answers, %"]
    rows = []
    for setting in adapter_settings.SETTINGS:
        losses = [task.loss(setting) for task in tasks.values()]
        if any(losses):
            rows.append([setting, *losses, task_cells.answers(tasks, setting)])
    return task_cells.markdown_table(columns, rows)
