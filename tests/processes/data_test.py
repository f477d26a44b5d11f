"""Data of a run: lists of files with weights, records held out, ways of packing, token files in shards. And what must not
happen unnoticed: a record on both sides, rows that differ between two plans, a file that changes under a run."""

import json
import os
import pty
import re
import shutil
import struct
import subprocess

import runs

MIX = 'data.train = ["train.jsonl", { path = "more.jsonl", weight = 2.5 }]\n'


class DataRuns(runs.RunCase):
    def setUp(self):
        super().setUp()
        self.write_records("more.jsonl", 40, "more")

    def write_records(self, name, count, word):
        lines = [json.dumps({"prompt": f"{word} {i} ", "completion": f"{i * i} {'x' * (i % 17)}"}) for i in range(count)]
        (self.home / name).write_text("\n".join(lines) + "\n")

    def said(self, code, *words):
        """Runs to the end, with this code: stderr."""
        _, err = self.ended(code, *words)
        return err

    def recipe(self, name, lines="", **changes):
        settings = {**self.SETTINGS, "train.steps": 4, "checkpoint.every": 2, **changes}
        return self.write_recipe(name, text=runs.recipe_text(settings) + lines)

    def planned(self, *words):
        return json.loads(self.ok("plan", *words, "--json"))

    def records_of(self, path):
        """The texts of all documents of a token file of bytes, in its order."""
        table = runs.read_safetensors(path)
        rows, length = table["input_ids"][1]
        ids, documents = (struct.unpack(f"<{rows * length}i", table[name][2]) for name in ("input_ids", "document"))
        texts = []
        for i, (token, document) in enumerate(zip(ids, documents)):
            if document == -1:
                continue
            if i % length == 0 or documents[i - 1] != document:
                texts.append(b"")
            texts[-1] += bytes([token]) if token < 256 else b""
        return texts

    def expected_records(self, *names):
        lines = [json.loads(line) for name in names for line in (self.home / name).read_text().splitlines()]
        return [(one["prompt"] + one["completion"]).encode() for one in lines]

    def test_a_list_with_weights_is_trained_resumed_and_exported(self):
        recipe = self.recipe("mix", MIX, **{"data.train": None, "data.hold_out": 0.2, "train.eval_every": 2})
        plan = self.planned(recipe)
        self.assertEqual(self.planned(recipe)["train"]["hash"], plan["train"]["hash"])
        other = self.planned(recipe, "--set", "seed=8")
        self.assertNotEqual((other["train"]["hash"], other["eval"]["hash"]), (plan["train"]["hash"], plan["eval"]["hash"]))
        out, err = self.ended(0, "run", recipe)
        self.assertRegex(err, r"train.jsonl: held out for evaluation: \d+ of 96 records\n")
        self.assertRegex(err, r"more.jsonl: held out for evaluation: \d+ of 40 records\n")
        self.assertIn("evaluation at step 4", out)
        run = self.run_of("mix")
        trained = self.records_of(run.path / "data/train.safetensors")
        held = self.records_of(run.path / "data/eval.safetensors")
        # Each record is on one side, however often its file's weight repeats it.
        self.assertEqual(set(trained) & set(held), set())
        self.assertEqual(set(trained) | set(held), set(self.expected_records("train.jsonl", "more.jsonl")))
        self.assertEqual(len(held), len(set(held)))
        times = [trained.count(text) for text in set(trained) if text.startswith(b"more")]
        self.assertEqual(set(times), {2, 3})
        self.assertEqual({trained.count(text) for text in set(trained) if not text.startswith(b"more")}, {1})
        self.assertIn("weight = 2.5", (run.path / "recipe.toml").read_text())
        whole = run.state(4)
        self.assertIn("target tokens of", self.ok("eval", "runs/mix"))
        self.ok("export", "runs/mix", "exported")
        self.assertIn("weight = 2.5", (self.home / "exported/README.md").read_text())
        # The plan is made anew from the rows that the run has: its sources may change or be gone.
        with open(self.home / "more.jsonl", "a") as file:
            file.write('{"prompt": "new ", "completion": "record"}\n')
        (self.home / "train.jsonl").unlink()
        data = {name: run.plan()[name] for name in ("train", "eval", "eval_micro_batches")}
        self.resumed(run, "--from", "2", "--set", "checkpoint.keep=3")
        self.assertEqual(run.state(4), whole)
        self.assertEqual({name: run.plan()[name] for name in data}, data)
        self.assertIn("weight = 2.5", (run.path / "recipe.toml").read_text())
        (run.path / "data/eval.safetensors").unlink()
        error = self.said(11, "resume", "runs/mix", "--from", "2", "--set", "checkpoint.keep=2")
        self.assertRegex(error, "eval.safetensors, from which the run reads its rows, is missing; put it back")

    def test_no_copy_of_a_held_out_chat_is_trained_on(self):
        lines = []
        for i in range(60):
            messages = [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": "a"}]
            turns = [{"from": "human", "value": f"q{i}"}, {"from": "gpt", "value": "a"}]
            lines += [{"messages": messages}, {"id": i, "messages": messages}, {"conversations": turns},
                      {"instruction": f"q{i}", "output": "a"}]
        (self.home / "chats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.ok("run", self.recipe("chats", **{"data.train": "chats.jsonl", "data.hold_out": 0.2}))
        folder = self.run_of("chats").path / "data"
        trained, held = (self.records_of(folder / name) for name in ("train.safetensors", "eval.safetensors"))
        self.assertEqual(set(trained) & set(held), set())
        self.assertEqual({trained.count(text) for text in trained} | {held.count(text) for text in held}, {4})

    def test_packed_loss_is_unpacked_loss(self):
        self.ok("run", self.recipe("tiny"))
        self.write_records("unseen.jsonl", 60, "unseen")
        losses = {}
        for packing in ("first_fit", "decreasing", "single"):
            self.ok("prepare", "unseen.jsonl", f"{packing}.safetensors", "--row", "32", "--packing", packing)
            losses[packing] = json.loads(self.ok("eval", "runs/tiny", "--data", f"{packing}.safetensors", "--json"))
        single = losses.pop("single")
        for packing, one in losses.items():
            self.assertEqual(one["target_tokens"], single["target_tokens"])
            self.assertAlmostEqual(one["loss"] / single["loss"], 1, delta=2e-6, msg=packing)

    def test_a_first_token_is_no_target(self):
        (self.home / "texts.jsonl").write_text('{"text": "abcd"}\n' * 100)
        self.ok("run", self.recipe("tiny"))
        said = self.ok("prepare", "texts.jsonl", "texts.safetensors", "--row", "32", "--show", "1")
        self.assertIn("\na[[bcd", said)
        scored = json.loads(self.ok("eval", "runs/tiny", "--data", "texts.safetensors", "--json"))
        self.assertIn(f", {scored['target_tokens']} targets, ", said)
        error = self.said(10, "prepare", "texts.jsonl", "more.safetensors", "--shard-gb", "nan")
        self.assertIn("nan is no number from 1e-06 to 1000000", error)

    def test_shards_are_the_rows_of_one_file(self):
        self.ok("prepare", "train.jsonl", "whole.safetensors", "--row", "32")
        said = self.ok("prepare", "train.jsonl", "part.safetensors", "--row", "32", "--shard-gb", "0.000005")
        parts = sorted(path.name for path in self.home.glob("part-*-of-*.safetensors"))
        self.assertGreater(len(parts), 2)
        self.assertIn(f"data.train = {json.dumps(parts)}", said)
        whole = self.planned(self.recipe("whole", **{"data.train": "whole.safetensors"}))
        sharded = self.planned(self.recipe("parts", **{"data.train": parts}))
        self.assertEqual(sharded["train"]["hash"], whole["train"]["hash"])
        self.ok("run", "parts.toml")
        # A file of a run that changes is noticed by the stage that maps it.
        run = self.run_of("parts")
        file = run.path / "data/train.safetensors"
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        out, err = self.ended(11, "resume", "runs/parts", "--from", "2")
        self.assertIn("has changed since the run was planned", out + err)

    def test_a_moved_run_has_its_own_rows(self):
        """Also where another run has its place and its name since."""
        settings = {"data.hold_out": 0.3}
        self.ok("run", self.recipe("mix", **settings))
        before = self.ok("eval", "runs/mix", "--json")
        self.ok("run", self.recipe("mix", **{**settings, "data.hold_out": 0.5, "data.train": "more.jsonl"}), "--replace")
        self.assertEqual(self.ok("eval", "runs/mix.old-1", "--json"), before)
        (self.home / "runs" / "mix.old-1").rename(self.home / "elsewhere")
        self.assertEqual(self.ok("eval", "elsewhere", "--json"), before)
        self.ok("resume", "elsewhere", "--set", "train.steps=6")
        rows = self.home / "elsewhere" / "data" / "eval.safetensors"
        rows.write_bytes((self.home / "runs" / "mix" / "data" / "eval.safetensors").read_bytes())
        self.assertIn("eval.safetensors has changed since the run began", self.said(11, "eval", "elsewhere"))

    def test_data_without_a_target_is_refused(self):
        (self.home / "empty.jsonl").write_text('{"text": ""}\n' * 4)
        refusal = r"empty.jsonl: no record is left to {} \(4 pieces of records without a target left out\)"
        training = self.said(10, "plan", self.recipe("none", **{"data.train": "empty.jsonl"}))
        self.assertRegex(training, refusal.format("train on"))
        evaluation = self.said(10, "plan", self.recipe("none", **{"data.eval": "empty.jsonl"}))
        self.assertRegex(evaluation, refusal.format("evaluate"))
        self.ok("run", self.recipe("some"))
        self.assertRegex(self.said(10, "eval", "runs/some", "--data", "empty.jsonl"), refusal.format("evaluate"))

    def test_a_record_too_long_for_an_evaluation_names_commands_that_work(self):
        self.ok("run", self.recipe("some"))
        with open(self.home / "more.jsonl", "a") as file:
            file.write(json.dumps({"prompt": "a", "completion": "b" * 40}) + "\n")
        error = self.said(10, "eval", "runs/some", "--data", "more.jsonl")
        self.assertRegex(error, r"more.jsonl:41: the record has 42 tokens, but a row has 32; to evaluate the others: ")
        self.assertEqual(error.count("\n"), 1, error)
        prepare, evaluate = re.search(r": \S+ (prepare more.jsonl .*) && \S+ (eval runs/some --data \S+) ", error).groups()
        self.assertIn("1 dropped", self.ok(*prepare.split()))
        self.assertIn("target tokens of out.safetensors", self.ok(*evaluate.split()))
        self.assertRegex(self.said(10, "prepare", "more.jsonl", "--row", "32"), "make --row longer, or add --too-long drop, ")

    def test_no_color_is_heeded(self):
        for value, coloured in ((None, True), ("", True), ("1", False)):
            environment = {name: text for name, text in os.environ.items() if name != "NO_COLOR"}
            if value is not None:
                environment["NO_COLOR"] = value
            screen, end = pty.openpty()
            done = subprocess.run([self.program, "prepare", "train.jsonl", "--show", "1"], cwd=self.home, stdout=end, env=environment)
            self.assertEqual(done.returncode, 0)
            text = os.read(screen, 1 << 16).decode()  # little: it has fitted into the terminal's buffer
            os.close(end), os.close(screen)
            self.assertEqual(("\x1b[32m" in text, "[[" in text), (coloured, not coloured), text)

    def test_no_rows_and_too_few_rows_are_refused(self):
        (self.home / "long.jsonl").write_text(json.dumps({"prompt": "a", "completion": "b" * 40}) + "\n")
        (self.home / "one.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
        origin = r"train.batch is 8 \(bad.toml:\d+:\d+\), but "
        for changes, says in (
            ({"data.eval": "long.jsonl", "data.too_long": "drop"}, "long.jsonl: no record is left to evaluate .*1 dropped"),
            ({"data.train": "long.jsonl", "data.too_long": "drop"}, "long.jsonl: no record is left to train on .*1 dropped"),
            ({"data.train": "one.jsonl"}, origin + "one.jsonl has 1 row of 32 tokens; make train.batch or data.row smaller"),
            ({"data.train": "one.jsonl", "pipeline.replicas": 2},
             origin + "one.jsonl has 1 row of 32 tokens, 0 for each of 2 replicas; make"),
        ):
            error = self.said(10, "plan", self.recipe("bad", **changes))
            self.assertRegex(error, says)
            self.assertEqual(error.count("\n"), 1, error)
        self.ok("run", self.recipe("some", **{"data.too_long": "drop"}))
        self.assertIn("no record is left to evaluate", self.said(10, "eval", "runs/some", "--data", "long.jsonl"))

    def test_a_users_token_file_that_changes_is_refused(self):
        for name in ("rows", "held"):
            self.ok("prepare", "train.jsonl", f"{name}.safetensors", "--row", "32")
        self.ok("run", self.recipe("own", **{"data.train": "rows.safetensors", "data.eval": "held.safetensors"}))
        self.resumed(self.run_of("own"), "--from", "2", "--set", "checkpoint.keep=3")
        for name in ("held", "rows"):
            self.ok("prepare", "more.jsonl", f"{name}.safetensors", "--row", "32")
            error = self.said(11, "resume", "runs/own", "--from", "2", "--set", "checkpoint.keep=2")
            self.assertRegex(error, rf"{name}.safetensors has changed since the run began .*put it back")

    def test_refusals_are_one_sentence(self):
        (self.home / "book.txt").write_text("a text\n" * 50)
        self.ok("prepare", "train.jsonl", "tokens.safetensors", "--row", "32")
        shutil.copy(self.home / "tokens.safetensors", self.home / "same.safetensors")
        for changes, says in (
            ({"data.train": "book.txt", "data.hold_out": 0.1}, "book.txt is one text.*data.eval"),
            ({"data.train": "tokens.safetensors", "data.hold_out": 0.1}, "token file.*data.eval"),
            ({"data.hold_out": 0.0001}, "data.hold_out = 0.0001 takes none of the records of train.jsonl"),
            ({"data.train": ["tokens.safetensors", "absent.jsonl"]}, "absent.jsonl"),
        ):
            error = self.said(10, "plan", self.recipe("bad", **changes))
            self.assertRegex(error, says)
            self.assertEqual(error.count("\n"), 1, error)
        tiny = self.recipe("bad", 'data.train = ["train.jsonl", { path = "more.jsonl", weight = 0.001 }]\n', **{"data.train": None})
        self.assertRegex(self.said(10, "plan", tiny), "the weight 0.001 of more.jsonl takes none of its .* rows")
        self.said(10, "prepare", "train.jsonl", "--overlap", "128")


if __name__ == "__main__":
    runs.main()
