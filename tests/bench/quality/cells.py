"""Runs of the real program: a pre-trained model, and a cell of the table, which is one fine-tuning
over four stages with one codec, one task and one seed."""

import json
import shutil
import subprocess
import time

import answers
import tasks

STAGES = 4
SLOW_LINKS = (100, 500)  # Mbit/s
# How much longer float32 activations of a micro-batch take on the first of them than a stage's
# forward and backward together: of GPT2-XL on eight of the machines it was published with.
FP32_OVER_WORK = 2.9
WIDE = 1024  # values of a token: every token and row has a few bytes of its own


def bytes_per_second(megabits):
    return megabits * 125000


MODEL = {
    "model_type": "gpt2", "vocab_size": answers.END + 1, "n_positions": tasks.ROW, "n_head": 4, "embd_pdrop": 0.0,
    "attn_pdrop": 0.0, "resid_pdrop": 0.0, "bos_token_id": answers.END, "eos_token_id": answers.END,
    "tie_word_embeddings": True,
}


class Sizes:
    """How large everything is; the smoke test takes a smaller one."""

    width = 64
    layers = 8
    pretrain_steps = 1200
    pretrain_batch = 16
    rows = 512
    eval_rows = 1000  # of twenty files of a source; the first 256 are of five
    records = 1400
    eval_records = 400
    epochs = 3
    batch = 16
    micro_batch = 4
    replica_count = 4  # of the runs that compare syncs
    learning_rates = {"code": 1e-3, "instructions": 2e-3, "english": 1e-3, "perl": 1e-3}


class SmallSizes(Sizes):
    layers = 4
    pretrain_steps = 6
    rows = 32
    eval_rows = 16
    records = 120
    eval_records = 20


# Task -> on what its model was trained before.
TASKS = {"code": "english", "instructions": "english", "english": "code", "perl": "headers"}
OWN = "own"  # the user's model and data


def variant(task, rate):
    """A task at a multiple of its learning rate; its cells and columns go by this name."""
    return task if rate == 1 else f"{task} x{rate:g}"


def split_variant(name):
    task, _, rate = name.partition(" x")
    return task, float(rate or 1)


class Bench:
    """A folder with models, data and finished cells; what is there already is not done again."""

    def __init__(self, folder, binaries, sizes, english=None, own=None):
        """`own`: keys of the recipe that say the user's model and data."""
        self.folder = folder
        self.strait = binaries / "strait"
        self.simulate = binaries / "simulate"
        self.sizes = sizes
        self.english = english
        self.own = own
        self.row = own["data.row"] if own else tasks.ROW
        folder.mkdir(parents=True, exist_ok=True)
        self.results = folder / "results.jsonl"

    def cells(self):
        """(task, setting, seed) -> what was measured."""
        if not self.results.exists():
            return {}
        lines = map(json.loads, self.results.read_text().splitlines())
        return {(line["task"], line["setting"], line["seed"]): line for line in lines}

    # Data and models.

    def texts(self, name):
        """(to train on, to evaluate on)."""
        if name in tasks.SOURCES:
            return tasks.SOURCES[name]()
        text = tasks.english(self.english)
        cut = len(text) * 9 // 10
        return text[:cut], text[cut:]

    def prepare(self, task):
        """Writes what a task needs, its pre-trained model too. Unavailable: it cannot be had."""
        sizes = self.sizes
        if task == OWN:
            return
        if task == "instructions":
            records = tasks.instructions(sizes.records + sizes.eval_records)
            test, train = records[: sizes.eval_records], records[sizes.eval_records :]
            tasks.write_records(self.folder / "instructions.jsonl", train)
            tasks.write_records(self.folder / "instructions-eval.jsonl", test)
        else:
            train, test = self.texts(task)
            tasks.write_rows(self.folder / f"{task}.safetensors", train, sizes.rows)
            tasks.write_rows(self.folder / f"{task}-eval.safetensors", test, sizes.eval_rows)
        self.pretrain(TASKS[task])

    def pretrain(self, corpus):
        model = self.folder / f"model-{corpus}"
        if model.exists():
            return
        sizes = self.sizes
        self.write_config("config", sizes.width)
        train, _ = self.texts(corpus)
        rows = self.folder / f"pretrain-{corpus}.safetensors"
        wanted = sizes.pretrain_steps * sizes.pretrain_batch
        tasks.write_rows(rows, train, min(wanted, len(train) // tasks.ROW))
        name = f"pretrain-{corpus}"
        recipe = self.recipe(name, 1) | {"data.train": rows.name, "model.path": "config"}
        recipe |= {"model.weights": "random", "pipeline.stages": 1, "train.learning_rate": 3e-3}
        recipe |= {"train.steps": sizes.pretrain_steps, "train.warmup": sizes.pretrain_steps // 10}
        recipe |= {"train.batch": sizes.pretrain_batch}
        self.run(name, recipe)
        self.call("export", f"runs/{name}", model.name)
        shutil.rmtree(self.folder / "runs" / name)

    def write_config(self, name, width):
        (self.folder / name).mkdir(exist_ok=True)
        shape = {"n_embd": width, "n_layer": self.sizes.layers}
        (self.folder / name / "config.json").write_text(json.dumps(MODEL | shape))

    # Runs.

    def recipe(self, name, seed):
        """All but the model and the data."""
        return {
            "name": name, "seed": seed, "data.tokenizer": "bytes", "data.row": self.row, "pipeline.stages": STAGES,
            "pipeline.threads": 1, "train.batch": self.sizes.batch, "train.micro_batch": self.sizes.micro_batch,
            "checkpoint.every": 0,
        }

    def inputs_of(self, task):
        """Keys of the recipe."""
        task, _ = split_variant(task)
        if task == OWN:
            return self.own
        ending = "jsonl" if task == "instructions" else "safetensors"
        return {"data.train": f"{task}.{ending}", "data.eval": f"{task}-eval.{ending}",
                "model.path": f"model-{TASKS[task]}"}

    def call(self, *words):
        done = subprocess.run(
            [self.strait, *words], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )
        if done.returncode != 0:
            command = " ".join(["strait", *words])
            raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout

    def write_recipe(self, name, recipe):
        file = self.folder / f"{name}.toml"
        file.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in recipe.items() if v is not None))
        return file.name

    def run(self, name, recipe):
        self.call("run", self.write_recipe(name, recipe), "--replace")
        return self.folder / "runs" / name

    def measure(self, task, setting, seed, keys):
        """One cell, written down; `keys` of the recipe are what its setting says. `task` may be a
        variant()."""
        named, (task, _) = task, split_variant(task)
        name = f"cell-{task}"
        recipe = self.recipe(name, seed) | self.inputs_of(task)
        recipe |= {"train.epochs": self.sizes.epochs, "train.warmup": 10, **keys}
        begun = time.monotonic()
        run = self.run(name, recipe)
        cell = {"task": named, "setting": setting, "seed": seed, "keys": keys}
        cell |= {"seconds": time.monotonic() - begun, **self.read(run)}
        if task == "instructions":
            model = self.folder / f"{name}-model"
            shutil.rmtree(model, ignore_errors=True)  # of a bench that was killed
            merge = ["--merge"] if "model.lora.rank" in keys else []
            self.call("export", f"runs/{name}", model.name, *merge)
            cell["accuracy"] = answers.accuracy(model, self.folder / f"{task}-eval.jsonl")
            shutil.rmtree(model)
        shutil.rmtree(run)
        with open(self.results, "a") as file:
            file.write(json.dumps(cell) + "\n")
        return cell

    def read(self, run):
        events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        found = {
            "loss": next(e["loss"] for e in events if e["event"] == "evaluated"),
            "steps": len(steps),
            "skipped": sum(bool(step.get("skipped")) for step in steps),
        }
        # What rounds sent, and that with votes and whatever else keeps replicas together.
        parts = [part for step in steps for part in step.get("sync") or []]
        found["bytes_rounds"] = sum(part["sent_bytes"] for part in parts)
        found["bytes_half_ring"] = sum(part["bfloat16_bytes"] for part in parts)
        found["bytes_sync"] = sum(step["bytes_sync"] for step in steps)
        # Of each epoch, because the first visit of a sample takes more bytes than later ones.
        epochs = self.sizes.epochs
        for direction in ("forward", "backward"):
            sent = [step[f"bytes_{direction}"] for step in steps]
            found[f"bytes_{direction}"] = [sum(sent[len(sent) * e // epochs : len(sent) * (e + 1) // epochs])
                                           for e in range(epochs)]
        return found

    def forecast(self, cell, megabits):
        """Seconds of the whole run on links of that width, in the best depth. The stages work at a
        pace that makes links matter as they do for a large model, see FP32_OVER_WORK."""
        sizes = self.sizes
        micro_batches = sizes.batch // sizes.micro_batch
        values = sizes.micro_batch * self.row * sizes.width
        work = 4 * values / bytes_per_second(SLOW_LINKS[0]) / FP32_OVER_WORK
        stage = f"{work / 3} {work * 2 / 3} 0"
        total = 0
        for forward, backward in zip(cell["bytes_forward"], cell["bytes_backward"]):
            steps = cell["steps"] / sizes.epochs
            share = steps * micro_batches * (STAGES - 1)
            link = f"{forward / share} {backward / share} {bytes_per_second(megabits)} 0"
            lines = [stage] * STAGES + [link] * (STAGES - 1)
            shapes = (f"1f1b {STAGES} {micro_batches} {depth}" for depth in range(3))
            total += steps * min(self.simulated(shape, lines) for shape in shapes)
        return total

    def plan_when_wide(self, keys):
        """Of three epochs of a model of width WIDE."""
        self.write_config("config-wide", WIDE)
        recipe = self.recipe("wide", 1) | {"data.train": "wide.safetensors", "data.row": tasks.ROW}
        tasks.write_rows(self.folder / "wide.safetensors", bytes(64 * tasks.ROW), 64)
        return self.plan(recipe | {"model.path": "config-wide", "model.weights": "random", "train.epochs": 3, **keys})

    def plan(self, recipe):
        return json.loads(self.call("plan", self.write_recipe(recipe["name"], recipe), "--json"))

    def planned_bytes(self, keys):
        """Of a boundary, as the program plans it."""
        plan = self.plan_when_wide(keys)
        link = next(link for link in plan["links"] if link["use"] == "boundary")
        first, later = link["first_forward_bytes"], link["forward_bytes"]
        return first + 2 * later + 3 * link["backward_bytes"]

    def simulated(self, schedule, lines):
        asked = "\n".join([schedule, *lines])
        done = subprocess.run([self.simulate], input=asked, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["seconds"]
