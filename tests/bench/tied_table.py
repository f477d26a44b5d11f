"""A tied token table on two stages: what crosses and how long it is waited for. See README.md.

usage: tied_table.py [--bin FOLDER] [--former FOLDER] [--steps 6] [--megabits 100] [--cases CASE ...]
                     [--quick]

Two stages in a network namespace whose loopback carries so many Mbit/s in each direction: so it
needs root, `unshare` and `tc`. --former: programs of a build that is measured in turn. Exit code 77,
with the reason, where such a namespace cannot be had.
"""

import array
import json
import pathlib
import pydoc_data.topics
import random
import re
import statistics
import struct
import subprocess
import sys

import machinery
import narrow_links

PORTS = (narrow_links.PORT, "0xfff8")  # of the boundary and the tie
WARM = 1  # steps before times count
ROWS = 8  # of a step, each a micro-batch
SIZES = {"vocab_size": 50257, "n_embd": 768, "n_head": 12, "n_layer": 2}
SMALL = {"vocab_size": 1000, "n_embd": 64, "n_head": 2, "n_layer": 2}
# Tokens and codec. Text: words and signs of Python's language reference; random: the most rows.
CASES = {"text": ("text", {}), "random": ("random", {}), "text-delta": ("text", narrow_links.DELTA)}


def words_of_text(row, vocabulary):
    """In rows of consecutive ones, which are shuffled."""
    text = "\n".join(pydoc_data.topics.topics.values())
    words = re.findall(r" ?\w+|[^\w\s]+|\s+", text)
    numbers = {word: number % vocabulary for number, word in enumerate(dict.fromkeys(words))}
    rows = [words[at : at + row] for at in range(0, len(words) - row, row)]
    random.Random(machinery.SEED).shuffle(rows)
    return [numbers[word] for words in rows for word in words]


def write_rows(path, rows, row, vocabulary, kind):
    if kind == "text":
        tokens = words_of_text(row, vocabulary)[: rows * row]
    else:
        tokens = random.Random(machinery.SEED).choices(range(vocabulary), k=rows * row)
    data = array.array("i", tokens).tobytes()
    info = {"dtype": "I32", "shape": [rows, row], "data_offsets": [0, len(data)]}
    header = json.dumps({"input_ids": info}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def make_bench(folder, steps, small):
    sizes = SMALL if small else SIZES
    (folder / "model").mkdir()
    model = dict(machinery.MODEL, **sizes)
    (folder / "model/config.json").write_text(json.dumps(model))
    row = model["n_positions"]
    for kind in ("text", "random"):
        write_rows(folder / f"{kind}.safetensors", ROWS * steps, row, sizes["vocab_size"], kind)
    for name, (tokens, codec) in CASES.items():
        settings = {
            "data.train": f"{tokens}.safetensors", "data.tokenizer": None, "data.row": row, "pipeline.stages": 2,
            "train.steps": steps, "train.batch": ROWS, "train.micro_batch": 1, "train.learning_rate": 1e-4,
            "hosts.ports": "47000-47007", "hosts.shared_memory": False,
        }
        machinery.write_recipe(folder, name, settings | codec)
    return sizes["vocab_size"] * sizes["n_embd"] * 4


class Measurement:
    """One run: medians over its steps."""

    def __init__(self, program, folder, name):
        run = machinery.Run(program, folder, f"{name}.toml")
        steps = machinery.metrics_of(folder, name)[WARM:]
        self.seconds = statistics.median(step["seconds"] for step in steps)
        # A build of before counts them as sync, of which there is none.
        self.bytes = statistics.median(step.get("bytes_tied") or step["bytes_sync"] for step in steps)
        self.waited = statistics.median(step.get("tied_wait_seconds", float("nan")) for step in steps)
        self.memory = run.memory


def planned(program, folder, name):
    command = [program, "plan", f"{name}.toml", "--json"]
    plan = json.loads(subprocess.check_output(command, cwd=folder))
    tie = next(link for link in plan["links"] if link["use"] == "tie")
    return tie["forward_bytes"] + tie["backward_bytes"]


def measure(programs, folder, cases, megabits, table):
    print("build   case        Mbit/s  s/step  tie, MB a step  of both tables  planned MB  waited, s")
    memory = {}
    for build, program in programs.items():
        for name in cases:
            # What is sent of a whole table depends on nothing.
            if build == "former" and name != "text":
                continue
            for width in (0, megabits):
                narrow_links.shape(width * 1e6, PORTS)
                one = Measurement(program, folder, name)
                memory[build] = one.memory
                print(f"{build:6}  {name:10}  {width or float('inf'):6}  {one.seconds:6.2f}"
                      f"  {one.bytes / 1e6:14.2f}  {one.bytes / table / 2:14.2%}"
                      f"  {planned(program, folder, name) / 1e6:10.2f}  {one.waited:9.3f}",
                      flush=True)
    print("\nmemory, peak in MiB")
    for build, processes in memory.items():
        peaks = [f"{name} {one['VmHWM'] / machinery.MIB:.0f}" for name, one in sorted(processes.items())]
        print(f"{build:6}  {', '.join(peaks)}")


def main():
    options = machinery.options_of(__doc__, former=None, steps=6, megabits=100, cases=CASES)
    narrow_links.enter_namespace()
    programs = {"this": options.bin / "strait"}
    if options.former:
        programs["former"] = pathlib.Path(options.former).resolve() / "strait"
    with machinery.scratch() as folder:
        table = make_bench(folder, 3 if options.quick else options.steps, options.quick)
        measure(programs, folder, options.cases, options.megabits, table)


if __name__ == "__main__":
    sys.exit(main())
