"""Finished cells as Markdown."""

import statistics

import cells
import settings


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


def mean_and_spread(values, form):
    text = format(statistics.mean(values), form)
    return f"{text} ± {format(spread(values), form.lstrip('+'))}" if len(values) > 1 else text


def sent(cell):
    return sum(cell["bytes_forward"]) + sum(cell["bytes_backward"])


def saving_when_wide(bench, setting):
    codec = settings.SETTINGS[setting]
    if "auto" in codec.values():
        return "–"  # depends on what it will measure
    half = bench.planned_bytes(settings.SETTINGS[settings.BF16])
    return f"{half / bench.planned_bytes(codec):.2f}"


def of_task(bench, done, task):
    """The table of one task: a line per setting, everything relative to raw paired by seed."""
    raw = {seed: cell for (t, s, seed), cell in done.items() if (t, s) == (task, settings.RAW)}
    half = [cell for (t, s, _), cell in done.items() if (t, s) == (task, settings.BF16)]
    seeds = sorted(raw)
    if not seeds or not half:
        return []
    # The same rows in another order: as many bytes with every seed.
    bytes_of_half = statistics.mean(map(sent, half))
    with_answers = raw[seeds[0]].get("accuracy") is not None
    columns = ["codec forward/backward bits", "seeds", "eval loss", "against raw, %"]
    columns += ["exact answers, %"] if with_answers else []
    columns += ["bytes of bf16 ÷ bytes", f"the same at width {cells.WIDE}"]
    columns += [f"s at {width} Mbit/s" for width in cells.SLOW_LINKS]
    lines = ["", f"**{task}**", "", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for setting in settings.SETTINGS:
        mine = {seed: done[task, setting, seed] for seed in seeds if (task, setting, seed) in done}
        if not mine:
            continue
        row = [setting, str(len(mine))]
        row.append(mean_and_spread([cell["loss"] for cell in mine.values()], ".4f"))
        change = [100 * (cell["loss"] / raw[seed]["loss"] - 1) for seed, cell in mine.items()]
        row.append(mean_and_spread(change, "+.2f"))
        if with_answers:
            row.append(mean_and_spread([100 * cell["accuracy"] for cell in mine.values()], ".1f"))
        ratio = [bytes_of_half / sent(cell) for cell in mine.values()]
        row.append(f"{statistics.mean(ratio):.2f}")
        row.append(saving_when_wide(bench, setting))
        first = next(iter(mine.values()))
        row += [f"{bench.forecast(first, width):.1f}" for width in cells.SLOW_LINKS]
        skipped = sum(cell["skipped"] for cell in mine.values())
        row[0] += f" ({skipped} steps skipped)" if skipped else ""
        lines.append("| " + " | ".join(row) + " |")
    return lines


def markdown(bench):
    done = bench.cells()
    tables = (of_task(bench, done, task) for task in cells.TASKS)
    return "\n".join(line for lines in tables for line in lines)
