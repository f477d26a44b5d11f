"""Writes fit.md from what `strait plan --fit` says: python docs/fit.py [STRAIT], by default that of the release build."""

import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
PROGRAM = FOLDER.parent / "build/release/bin/strait"
LINES = (100, 300, 1000)
HEAD = """# What fits, and how fast

On which cards, over how many hosts and lines, a model trains, by forecast: `strait plan` made this page, and nothing on
it is measured. **All speeds are assumed**, so figures have one or two digits:

- cards are an RTX 4080 (16 GB), an RTX 3090 (24 GB), an RTX A6000 (48 GB) and an A100 (80 GB), one in each host, which
  reach 45 % of their published bfloat16 figure;
- a host has 128 GB of memory, read and written at 20 GB/s, and 12 GB/s over PCIe;
- its line carries this many Mbit/s in each direction;
- a step has 32 rows of 2,048 tokens, one row a micro-batch; weights are in bfloat16; boundaries have 6 bits a value;
- LoRA has rank 16 in all matrices; QLoRA is the same over a base in nf4. What reading nf4 costs is not counted;
- all hosts are used, as stages, replicas (with exact sums) or both, whichever is fastest. Fewer hosts may be faster;
- `model.recompute`, `train.moments` and `train.offload` are `"auto"`: [what they take, in which order](runs.md#resume).

For your model and line, or your hosts:

    strait plan --fit recipe.toml --megabits 200    # its model, adapters, rows, batch and codec, on these cards
    strait plan --fit 7B                            # a size of this page, over 100 Mbit/s
    strait plan recipe.toml                         # your hosts

"""
READING = """## How to read the tables

A cell is tokens a second over {} Mbit/s. **r**: recompute; **a**: activations,
**o**: the optimizer in host memory; **d**: on the disk; **b**, **8**: moments in bfloat16, int8; –: it does not fit.
The last column is the Mbit/s from which two hosts are faster than one.
"""


def rows_of(program, *size):
    done = subprocess.run([program, "plan", "--fit", *size, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def plan_of(row, hosts, line=None):
    return next((plan for plan in row["plans"] if plan["hosts"] == hosts and plan.get("link_megabits") == line), None)


def marks_of(plan):
    return ({"none": "", "layer": "r", "offload": "a"}[plan["recompute"]] + {"none": "", "optimizer": "o", "disk": "d"}[plan["offload"]]
            + {"float32": "", "bfloat16": "b", "int8": "8"}[plan["moments"]])


def cell(plans):
    """Tokens a second of these plans; what they take once if it is the same."""
    if not any(plans):
        return "–"
    marks = [marks_of(plan) if plan else None for plan in plans]
    tokens = [f"{plan['tokens_per_second']:.0f}" if plan else "–" for plan in plans]
    if len(set(marks)) == 1:
        return f"{' / '.join(tokens)} {marks[0]}".strip()
    return " / ".join(f"{one} {mark or ''}".strip() for one, mark in zip(tokens, marks))


def second_host(row):
    if not plan_of(row, 1):
        return "–"
    return str(row["second_host_from"] or "never")


def table(head, rows):
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def four_cards(rows):
    """A 7B, trained whole, on four cards of 24 GB."""
    row = next(one for one in rows if (one["model"], one["training"], one["gibibytes"]) == ("7B", "full", 24))
    plans = [plan_of(row, 4, line) for line in LINES]
    return "## A 7B, trained whole, on four cards of 24 GB\n\n" + table(
        ["Mbit/s", "tokens a second", "stages × replicas", "recompute", "moments", "off-load"],
        [[str(line), f"{plan['tokens_per_second']:.0f}", f"{plan['stages']} × {plan['replicas']}", plan["recompute"],
          plan["moments"], plan["offload"]] for line, plan in zip(LINES, plans) if plan]
    ) + "\nWith moments in float32 it fits, too, if it is off-loaded ([memory](runs.md#resume)).\n"


def off_load(rows):
    """From which line on two hosts beat one whose optimizer is off-loaded."""
    alone = [(row, plan_of(row, 1)) for row in rows]
    return "## When a second host beats off-load\n\n" + table(
        ["model", "training", "card", "one card with off-load, tokens a second", "two hosts are faster from, Mbit/s"],
        [[row["model"], row["training"], f"{row['gibibytes']} GB", cell([plan]), second_host(row)]
         for row, plan in alone if plan and plan["offload"] == "optimizer"])


def section(rows, model):
    return f"## {model}\n\n" + table(
        ["training", "card", "1 host", "2 hosts", "4 hosts", "8 hosts", "2 beat 1"],
        [[row["training"], f"{row['gibibytes']} GB", cell([plan_of(row, 1)]),
          *(cell([plan_of(row, hosts, line) for line in LINES]) for hosts in (2, 4, 8)), second_host(row)]
         for row in rows if row["model"] == model])


def main():
    rows = rows_of(*sys.argv[1:2] or [PROGRAM])
    models = list(dict.fromkeys(row["model"] for row in rows))
    parts = [four_cards(rows), off_load(rows), READING.format(" / ".join(map(str, LINES)))]
    (FOLDER / "fit.md").write_text(HEAD + "\n".join(parts + [section(rows, model) for model in models]))


if __name__ == "__main__":
    main()
