"""A step whose masters and moments are in the host's memory or on its disk, against one that keeps them. See README.md.

usage: offload.py [--bin FOLDER] [--build FOLDER] [--micro 16] [--steps 6] [--rounds 3] [--quick]

Stages on CPUs, and on the device that stands for a GPU (tests/device; without it only CPUs). Rounds take turns.
"""

import json
import os
import pathlib
import statistics

import machinery

MODEL = machinery.MODEL | {"n_embd": 768, "n_layer": 4, "n_head": 12, "vocab_size": 32_000, "tie_word_embeddings": False}
WARM = 2  # steps
PLACES = {"cpu": ("none", "disk"), "device": ("none", "optimizer", "disk")}


def main():
    options = machinery.options_of(__doc__, build=os.environ.get("STRAIT_BUILD", str(machinery.ROOT / "build/release")),
                                   micro=16, steps=6, rounds=3)
    device = pathlib.Path(options.build).resolve() / "tests/device/libtest_device.so"
    model, places = MODEL, PLACES if device.exists() else {"cpu": PLACES["cpu"]}
    if options.quick:
        model = MODEL | {"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 257}
        options.micro, options.steps, options.rounds = 2, 3, 1
    row = 64 if options.quick else 128
    more = {"device": {"plugins": [str(device)], "model.dtype": "bfloat16"}, "cpu": {}}
    with machinery.scratch() as folder:
        (folder / "model").mkdir()
        (folder / "model/config.json").write_text(json.dumps(model))
        machinery.write_text(folder, row, 200)
        print(f"2 stages, {options.micro} micro-batches of a row of {row} tokens; median seconds of a step, and against "
              "none in the same round")
        print("stages on  off-load    seconds    / none")
        for place, kinds in places.items():
            taken = {kind: [] for kind in kinds}
            for _ in range(options.rounds):
                for kind in kinds:
                    machinery.write_recipe(folder, "bench", {
                        "pipeline.stages": 2, "data.row": row, "train.batch": options.micro, "train.micro_batch": 1,
                        "train.steps": options.steps, "train.offload": kind, **more[place]})
                    machinery.Run(options.bin / "strait", folder, "bench.toml")
                    steps = [step["seconds"] for step in machinery.metrics_of(folder, "bench")[WARM:]]
                    taken[kind].append(statistics.median(steps))
            for kind in kinds:
                ratio = statistics.median(own / none for own, none in zip(taken[kind], taken["none"]))
                print(f"{place:9}  {kind:9} {statistics.median(taken[kind]):9.3f} {ratio:9.3f}", flush=True)


if __name__ == "__main__":
    main()
