"""A checkpoint of any layout goes on in any other: stages, replicas, schedule, partition, codec, sync method, batch.

Seeded random pairs: a few here, many with STRAIT_CAMPAIGNS=1 (`./strait test --all`), or as many as STRAIT_PAIRS says from
the seed STRAIT_SEED. A pair is a run in the first layout, taken back to its middle and resumed in the second.
"""

import os
import random
import time

import runs

PAIRS = int(os.environ.get("STRAIT_PAIRS", 200 if runs.CAMPAIGN else 4))
SEED = int(os.environ.get("STRAIT_SEED", 1))
LIMIT = 540 if runs.CAMPAIGN and "STRAIT_PAIRS" not in os.environ else None  # seconds, below the limit of a test

STEPS, MIDDLE = 6, 3
BLOCKS = 8
RAW = {"codec.forward": "raw", "codec.backward": "raw", "codec.wire_dtype": "float32"}
CODECS = [RAW, {**RAW, "codec.wire_dtype": "bfloat16"}, {**RAW, "codec.forward": "fixed", "codec.backward": "fixed"},
          {**RAW, "codec.forward": "delta", "codec.backward": "fixed"}]
SYNC = [{"sync.method": "allreduce"}, {"sync.method": "cocktail", "sync.random": 0.3, "sync.top": 0.5},
        {"sync.method": "diloco", "sync.every": 2}, {"sync.method": "noloco", "sync.every": 2},
        {"sync.method": "powersgd", "sync.rank": 2}, {"sync.method": "bytegrad"}]
CUT = ("pipeline.stages", "pipeline.schedule", "pipeline.partition")


def random_cut(choose):
    stages = choose.randint(1, 4)
    schedule = choose.choice(["gpipe", "1f1b", "interleaved", "zero_bubble"])
    partition = choose.choice(["balanced", "balanced", "profile"])
    if choose.random() < 0.4:
        pieces = stages * (2 if schedule == "interleaved" else 1)
        ends = sorted(choose.sample(range(1, BLOCKS), pieces - 1)) + [BLOCKS]
        partition = [[first, last - 1] for first, last in zip([0] + ends, ends)]
    return dict(zip(CUT, (stages, schedule, partition)))


def random_layout(choose):
    batch = choose.choice([12, 24])
    layout = {
        **random_cut(choose), "pipeline.replicas": choose.choice([1, 1, 2, 3]), "train.batch": batch,
        "train.micro_batch": choose.choice([1, 2, "auto"]), "pipeline.slices": choose.choice([1, 1, 2, 4]),
        **choose.choice(CODECS),
    }
    return {**layout, **(choose.choice(SYNC) if layout["pipeline.replicas"] > 1 else {})}


def random_pair(choose):
    first = random_layout(choose)
    kind = choose.random()
    if kind < 0.2:
        return first, dict(first)
    if kind < 0.6:
        return first, {**first, **random_cut(choose)}
    return first, random_layout(choose)


def cut_text(layout):
    """What saved state of replicas and caches is bound to, as far as settings show it."""
    return str([layout[key] for key in CUT])


def sync_of(layout):
    return {key: value for key, value in layout.items() if key.startswith("sync.")}


class Layouts(runs.RunCase):
    SETTINGS = {
        **runs.RunCase.SETTINGS, "train.steps": STEPS, "checkpoint.every": MIDDLE, "train.warmup": 0,
        "train.learning_rate": 0.01, "train.decay": "constant",
    }
    CONFIG = {**runs.RunCase.CONFIG, "n_embd": 16, "n_layer": BLOCKS}

    def said(self, run):
        """What the newest launch dropped: names of events."""
        last = max(i for i, e in enumerate(run.events()) if e["event"] == "started")
        return {e["name"] for e in run.events()[last:] if e["event"] == "stage_event"}

    def words(self, first, second):
        changed = [key for key in second if second[key] != first.get(key)]
        values = (f"{key}={runs.toml(second[key])}" for key in changed)
        return [word for value in values for word in ("--set", value)]

    def resume_pair(self, number, first, second):
        run = self.train(f"pair-{number}", first)
        expected = run.learnt(STEPS)
        self.rewind_run(run, MIDDLE)
        self.resumed(run, *self.words(first, second))
        got = run.learnt(STEPS)
        said = self.said(run)
        same = first == second
        cut_only = {k: v for k, v in first.items() if k not in CUT} == {k: v for k, v in second.items() if k not in CUT}
        raw = {key: first[key] for key in RAW} == RAW
        stateless = first["pipeline.replicas"] == 1 or first["sync.method"] == "allreduce"
        if same or (cut_only and raw and stateless):
            self.assert_same_bits(expected, got)
            self.exact += 1
        if same:
            self.assertEqual(said & {"caches_dropped", "sync_restarted"}, set())
        self.assert_goes_on(expected, got, said)
        self.assert_said(first, second, said)
        return same, cut_only

    def assert_goes_on(self, expected, got, said):
        """From the weights of the first half, with all of them; from the agreed ones, which may lag, where it says so."""
        self.assertEqual(sorted(got[0]), list(range(1, STEPS + 1)))
        weights = {name for name in expected[1] if name.startswith("transformer.")}
        self.assertEqual(weights, {name for name in got[1] if name.startswith("transformer.")})
        losses = {step: values[0] for step, values in got[0].items()}
        if "sync_restarted" not in said:
            before = expected[0][MIDDLE][0]
            self.assertLess(losses[MIDDLE + 1], (losses[1] + before) / 2, "it began anew")
        self.assertLess(losses[STEPS], losses[1])

    def assert_said(self, first, second, said):
        def links(layout):
            return layout["pipeline.stages"] > 1

        delta = second["codec.forward"] == "delta" and links(second)
        other_cut = cut_text(first) != cut_text(second)
        if delta and not (first["codec.forward"] == "delta" and links(first)):
            self.assertIn("caches_dropped", said)
        if second["pipeline.replicas"] > 1 and sync_of(first) != sync_of(second):
            self.assertIn("sync_restarted", said)
        if first == second or not (delta or second["pipeline.replicas"] > 1):
            self.assertNotIn("caches_dropped", said)
        if second["pipeline.replicas"] == 1 and first["pipeline.replicas"] == 1:
            self.assertNotIn("sync_restarted", said)
        # The same layers in another schedule keep their state; other layers do not.
        if not other_cut and sync_of(first) == sync_of(second) and first["pipeline.replicas"] == second["pipeline.replicas"]:
            self.assertNotIn("sync_restarted", said)

    def test_wide_model_takes_the_memory_that_is_planned(self):
        """Its logits and activations leave holes in the heap: bounded for the former, planned for the latter."""
        wide = {"model_type": "qwen2", "vocab_size": 32000, "hidden_size": 512, "intermediate_size": 1408}
        wide |= {"num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": True}
        self.write_model("wide", **wide)
        settings = {"model.path": "wide", "data.row": 256, "train.steps": 3, "train.batch": 8, "checkpoint.every": 0}
        self.write_data("long.jsonl", 400)
        out = self.ok("run", self.write_recipe("run", {**settings, "data.train": "long.jsonl"}))
        self.assert_memory_as_planned(out, at_least=True)

    def test_any_layout_resumes_in_any_other(self):
        choose = random.Random(SEED)
        self.exact = same = cuts = done = 0
        begun = time.monotonic()
        for number in range(PAIRS):
            first, second = random_pair(choose)
            if LIMIT and time.monotonic() - begun > LIMIT:
                break
            with self.subTest(seed=SEED, pair=number, first=first, second=second):
                is_same, is_cut = self.resume_pair(number, first, second)
                same += is_same
                cuts += is_cut and not is_same
                done += 1
        print(f"seed {SEED}: {done} pairs resumed ({same} to the same layout, {cuts} to another cut only), {self.exact} compared "
              f"bit by bit, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    runs.main()
