"""Micro-batches in slices of their rows: seconds a step against whole rows and against the forecast. See README.md.

usage: slices.py [--bin FOLDER] [--stages 4] [--micro_batches 4] [--row 512] [--ratio 2] [--slices 1 2 4 8]
                 [--steps 6] [--rounds 1] [--quick]

--ratio: on the links, what crosses in a direction takes so many times a step's compute.
"""

import json
import statistics

import machinery

MODEL = dict(machinery.MODEL, n_embd=256, n_layer=8, n_head=4, tie_word_embeddings=False)
SMALL = dict(MODEL, n_embd=32, n_layer=4, n_head=2)
WARM = 2  # steps before times count


def make_bench(folder, options):
    (folder / "model").mkdir()
    model = dict(SMALL if options.quick else MODEL, n_positions=options.row)
    (folder / "model/config.json").write_text(json.dumps(model))
    machinery.write_text(folder, options.row, 100)
    settings = {"data.row": options.row, "train.batch": options.micro_batches, "train.micro_batch": 1,
                "train.steps": options.steps, "checkpoint.every": 0, "codec.forward": "fixed", "codec.forward_bits": 6,
                "codec.backward": "fixed", "codec.backward_bits": 6}
    for stages in (1, options.stages):
        for slices in options.slices:
            machinery.write_recipe(folder, f"{stages}-{slices}",
                                   settings | {"pipeline.stages": stages, "pipeline.slices": slices})


class Measurement:
    def __init__(self, program, folder, stages, slices, rate):
        name = f"{stages}-{slices}"
        words = ["--set", f"hosts.simulate.rate={rate}kbit/s"] if rate else []
        machinery.Run(program, folder, f"{name}.toml", words)
        steps = machinery.metrics_of(folder, name)
        self.seconds = statistics.median(step["seconds"] for step in steps[WARM:])
        self.megabytes = steps[-1]["bytes_forward"] / max(1, stages - 1) / 1e6
        self.loss = steps[-1]["loss"]
        self.forecast = json.loads((folder / f"runs/{name}/plan.json").read_text())["plan"]["step_seconds"]


def main():
    options = machinery.options_of(__doc__, stages=4, micro_batches=4, row=512, ratio=2.0, slices=[1, 2, 4, 8], steps=6,
                                   rounds=1)
    if options.quick:
        options.row, options.steps, options.rounds, options.slices = 64, 4, 1, [1, 4]
    program = options.bin / "strait"
    with machinery.scratch() as folder:
        make_bench(folder, options)
        one = Measurement(program, folder, 1, 1, 0)
        crossing = Measurement(program, folder, options.stages, 1, 0)
        rate = int(crossing.megabytes * 8e3 / (options.ratio * one.seconds))
        print(f"{options.stages} stages, {options.micro_batches} micro-batches of a row of {options.row} tokens; one stage "
              f"takes {one.seconds:.3f} s a step; {crossing.megabytes:.2f} MB a direction, links of {rate / 1e3:.2f} Mbit/s")
        print("slices  one stage  / whole  links: s a step  / whole  forecast  measured / forecast  loss")
        whole = None
        for slices in options.slices:
            alone = [Measurement(program, folder, 1, slices, 0) for _ in range(options.rounds)]
            split = [Measurement(program, folder, options.stages, slices, rate) for _ in range(options.rounds)]
            alone_seconds = min(run.seconds for run in alone)
            seconds = min(run.seconds for run in split)
            whole = whole or (alone_seconds, seconds)
            print(f"{slices:6}  {alone_seconds:9.3f}  {alone_seconds / whole[0]:7.2f}  {seconds:15.3f}  "
                  f"{seconds / whole[1]:7.2f}  {split[0].forecast:8.2f}  {seconds / split[0].forecast:19.2f}  "
                  f"{split[0].loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
