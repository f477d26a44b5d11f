"""Invalid input of users: an exit code and one error message with cause, place and remedy. Nothing is
started, overwritten or left half-done."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time

import runs


class BadInput(runs.RunCase):
    def refused(self, words, *says, code=10):
        """The error message, which is the only output."""
        out, err = self.ended(code, *words)
        self.assertEqual(out, "")
        self.assertRegex(err, r"\Astrait: [^\n]+(\n  [^\n]+)*\n\Z")
        for word in says:
            self.assertRegex(err, word)
        return err

    def refused_recipe(self, settings, *says, verbs=("plan", "run"), name="bad"):
        recipe = self.write_recipe(name, settings)
        for verb in verbs:
            self.refused([verb, recipe], *says)
        self.assertFalse((self.home / "runs").exists(), "it began a run")

    def line_of(self, key, name="bad"):
        lines = (self.home / f"{name}.toml").read_text().splitlines()
        return next(i for i, line in enumerate(lines, 1) if line.startswith(key))

    def test_recipes(self):
        # settings, what the sentence must hold; tests/launcher/recipe holds all other sentences
        cases = [
            ({"train.lerning_rate": 1}, "train.lerning_rate", "did you mean learning_rate", "warmup"),
            ({"pipeline.stages": 0}, "pipeline.stages is 0", "from 1"),
            ({"train.learning_rate": -1}, "train.learning_rate", "-1"),
            ({"pipeline.schedule": "1f2b"}, "pipeline.schedule", '"1f1b"', '"gpipe"'),
            ({"codec.forward": "transform", "codec.cache": 0, "codec.cache_disk": 0}, 'codec.forward is "transform"'),
            ({"codec.forward": "detla"}, "codec.forward", 'did you mean "delta"'),
            ({"codec.rotate": True}, r"codec.rotate is true \(.*\.toml:\d+", "this key was removed"),
            ({"hosts.backend": "ssh"}, "hosts.list", "missing"),
        ]
        for settings, *says in cases:
            with self.subTest(settings):
                self.refused_recipe(settings, *says, verbs=("plan",))

    def test_reports_all_recipe_errors_with_lines(self):
        self.write_recipe("bad", {"train.stepz": 3, "train.batch": "x", "data.row": 1})
        err = self.refused(["run", "bad.toml"])
        for key in ("train.stepz", "train.batch", "data.row"):
            self.assertRegex(err, rf"{key}.*bad\.toml:{self.line_of(key)}:\d+")
        self.assertFalse((self.home / "runs").exists())

    def test_recipe_files(self):
        self.refused(["run", "nowhere.toml"], "nowhere.toml", "No such file")
        self.write_recipe("broken", text="name = 'x'\n[model\n")
        self.refused(["run", "broken.toml"], r"broken\.toml:2:\d+", "TOML")

    def test_overrides(self):
        recipe = self.write_recipe("fine")
        for word, *says in [("train.stepz=3", r"train.stepz \(--set train.stepz=3\)", "did you mean steps"),
                            ("train.steps=1.5", "train.steps is 1.5", "--set", "integer"),
                            ("train.steps", "--set train.steps", "write it as"),
                            ("pipeline.schedule=both", "pipeline.schedule", "gpipe"),
                            ("train.learning_rate=.001", "digits on both sides of its point: 0.001"),
                            ('data.train=["train.jsonl", "./train.jsonl"]', "./train.jsonl is listed twice")]:
            with self.subTest(word):
                self.refused(["plan", recipe, "--set", word], *says)

    def test_command_lines(self):
        for words, say in [
            ([], "a verb is missing; strait --help lists them"),
            (["frobnicate"], '"frobnicate" is not a verb; strait --help lists them'),
            (["resme", "runs/x"], '"resme" is not a verb; did you mean resume\\?'),
            (["status", "caf\udce9"], "the argument .* is not UTF-8"),
            (["run-alocated"], '"run-alocated" is not a verb; strait --help lists them'),
            (["--jsn"], "strait has no flag --jsn; see: strait --help"),
            (["--json", "plan", "a.toml"], "--json comes after its verb; see: strait plan --help"),
            (["run"], "run needs an argument, recipe: a recipe file; see: strait run --help"),
            (["run", "a.toml", "--frob"], "run has no flag --frob; see: strait run --help"),
            (["run", "a.toml", "--sett", "seed=1"], r"run has no flag --sett; did you mean --set\?; see: strait run --help"),
            (["plan", "a.toml", "b.toml"], '"b.toml" is one argument too many; see: strait plan --help'),
            (["generate", "runs/x"], "generate needs one of: --prompt, --prompts; see"),
            (["generate", "runs/x", "--promt=a"], r"generate has no flag --promt; did you mean --prompt\?"),
            (["checkpoint"], "checkpoint needs one of: list, verify, copy, prune"),
            (["checkpoint", "lst", "runs/x"], r'checkpoint has no part "lst"; did you mean list\?'),
            (["checkpoint", "list"], "checkpoint list needs an argument, run: .* see: strait checkpoint list --help"),
            (["eval", "runs/x", "--on", "there"], "eval: --on: there not in .*; see: strait eval --help"),
            (["doctor", "--set", "train.steps=2"], "--set changes a recipe, and none is named; write: strait doctor RECIPE"),
        ]:
            with self.subTest(words):
                self.refused(words, rf"\Astrait: {say}")
        for words in (["--help"], ["run", "--help"]):  # not the path of the program
            self.assertRegex(self.ok(*words), r"Usage: strait (run )?\[OPTIONS\]")

    def test_the_doctor_checks_a_machine_without_a_recipe(self):
        out = self.ok("doctor", "--json")
        checks = json.loads(out)
        self.assertEqual({check["where"] for check in checks}, {"this machine"})
        texts = "\n".join(check["text"] for check in checks)
        self.assertRegex(texts, "strait 0.*\n(.*\n)*libtorch .*\n(.*\n)*cpu")

    def test_models(self):
        (self.home / "empty").mkdir()
        self.write_model("stranger", model_type="gpt3")
        self.write_model("uneven", n_head=5)
        self.write_model("small", vocab_size=100)
        (self.home / "torn").mkdir()
        (self.home / "torn" / "config.json").write_text('{"model_type": "gpt2", ')
        for model, *says in [
            ("nowhere", "model.path", "nowhere", "config.json"), ("empty", "model.path", "empty", "config.json"),
            ("stranger", "stranger/config.json", "gpt3", "gpt2"), ("uneven", "uneven/config.json", "n_head", "5"),
            ("torn", "torn/config.json"), ("small", "token", "train.jsonl", "257"),
        ]:
            with self.subTest(model):
                self.refused_recipe({"model.path": model}, *says, verbs=("run",))
        self.write_model("endless")
        with open(self.home / "endless" / "config.json", "r+b") as file:
            file.truncate(1 << 33)
        self.refused_recipe({"model.path": "endless"}, "endless/config.json has 8589934592 bytes; at most")

    def test_weights_and_adapters_that_are_not_there(self):
        (self.home / "empty").mkdir()
        for settings, *says in [
            ({"model.weights": "runs/x"}, 'model.weights = "runs/x" is not a directory here', "runs/NAME"),
            ({"model.weights": "./empty"}, 'model.weights = "./empty" is a directory without a complete checkpoint'),
            ({"model.adapter": "none"}, 'model.adapter = "none" is not a directory here', "PEFT"),
            ({"model.adapter": "empty"}, 'model.adapter = "empty" has no adapter_config.json', "PEFT"),
        ]:
            with self.subTest(settings):
                self.refused_recipe(settings, *says, verbs=("plan",))

    def test_a_model_that_is_not_here_ends_with_the_command_that_gets_it(self):
        (self.home / "my ggufs").mkdir()
        (self.home / "my ggufs/tiny.gguf").write_bytes(b"GGUF")
        for settings, command in [
            ({"model.path": "acme/Tiny-1B"}, "hf download acme/Tiny-1B --local-dir acme/Tiny-1B"),
            ({"model.path": "my ggufs"}, "hf download OWNER/NAME --local-dir tiny-safetensors"),
            ({"model.path": "model", "model.weights": "load"}, "hf download OWNER/NAME --local-dir model"),
            ({"model.adapter": "acme/lora"}, "hf download acme/lora --local-dir acme/lora"),
            ({"data.train": "acme/texts"}, "hf download acme/texts --repo-type dataset --local-dir acme/texts"),
            ({"data.tokenizer": "acme/Tiny-1B"}, r"hf download acme/Tiny-1B --include '\*.j\*' --local-dir acme/Tiny-1B"),
        ]:
            with self.subTest(settings):
                self.refused_recipe(settings, rf": {command}\n\Z", verbs=("plan",))

    def test_files_that_this_user_may_not_read_are_10(self):
        """A disk's 31 would start a run over ssh again."""
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        file = self.write_model("given", weights=True) / "model.safetensors"
        loads = {"model.path": "given", "model.weights": "load"}
        self.home.chmod(0o755)

        def refused_to_nobody(settings, say):
            words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", self.program, "plan"]
            done = subprocess.run([*words, self.write_recipe("bad", settings)], cwd=self.home, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (10, ""), done.stderr)
            self.assertRegex(done.stderr, rf"\Astrait: {say}[^\n]*\n\Z")

        for path, settings in ((file, loads), (self.home / "train.jsonl", {}), (file.parent / "config.json", loads)):
            path.chmod(0)
            with self.subTest(path.name):
                refused_to_nobody(settings, rf"cannot open \S*{path.name}: Permission denied")
            path.chmod(0o644)
        file.parent.chmod(0)
        refused_to_nobody(loads, 'model.path = "given" cannot be read by this user: Permission denied')
        file.parent.chmod(0o755)
        file.unlink()
        file.mkdir()
        self.refused_recipe(loads, "given/model.safetensors is not a regular file", verbs=("plan",))

    def test_what_a_run_needs_again_is_not_advised_as_a_key_of_recipes(self):
        self.write_model("given", weights=True)
        self.train("mine", {"model.path": "given", "model.weights": "load", "model.lora.rank": 2, "train.steps": 2})
        shutil.rmtree(self.home / "given")
        for words in (
            ["generate", "mine", "--prompt", "x"], ["export", "mine", "out", "--merge"], ["eval", "mine", "--data", "train.jsonl"],
        ):
            with self.subTest(words):
                self.assertNotIn("model.path", self.refused(words, "given(, | is missing; )", "put"))
        self.refused(["resume", "mine", "--set", "train.steps=4"], "given, ", r"--set model\.path=DIRECTORY$")

    def test_a_warmup_that_never_ends_is_noted(self):
        for warmup, noted in ((19, False), (20, True), (40, True)):
            recipe = self.write_recipe("warm", {"train.warmup": warmup, "train.learning_rate": 0.004})
            _, err = self.ended(0, "plan", recipe)
            says = rf"train.warmup is {warmup} steps, and the run has 20: .* to {0.004 * 20 / warmup:.3g} in the last step, of .* 0.004;"
            # Not as an error begins.
            self.assertRegex(err, rf"\Anote: {says}" if noted else r"\A\Z")

    def test_lists_all_wrong_tensors(self):
        file = self.write_model("other", weights=True) / "model.safetensors"
        tensors = runs.read_safetensors(file)
        missing = ["transformer.h.1.ln_1.bias", "transformer.wpe.weight"]
        for name in missing:
            del tensors[name]
        surplus = {"extra.one": [3], "transformer.h.9.ln_1.bias": [32]}
        misshapen = {"transformer.ln_f.weight": [31], "transformer.h.0.mlp.c_fc.weight": [128, 32]}
        for name, shape in {**surplus, **misshapen}.items():
            tensors[name] = runs.zeros(shape)
        runs.write_safetensors(file, tensors)
        self.refused_recipe(
            {"model.path": "other", "model.weights": "load"}, r"missing \(2\)", r"surplus \(2\)", r"misshapen \(2\)",
            r"\[128, 32\] and should be \[32, 128\]", *map(re.escape, [*missing, *surplus, *misshapen]),
        )

    def test_damaged_safetensors_files(self):
        file = self.write_model("given", weights=True) / "model.safetensors"
        good = file.read_bytes()
        (size,) = struct.unpack("<Q", good[:8])
        header = json.loads(good[8 : 8 + size])
        tensors = runs.read_safetensors(file)

        def damaged(name, **changes):
            runs.write_safetensors(file, tensors, {**header, name: {**header[name], **changes}})
            return file.read_bytes()

        first = min(header, key=lambda name: header[name]["data_offsets"])
        cases = {
            "empty": b"", "a few bytes": good[:5], "cut in the header": good[:100], "cut in the data": good[:-100],
            "longer than it says": good + bytes(10), "a header of exabytes": struct.pack("<Q", 1 << 60) + good[8:],
            "a header longer than the file": struct.pack("<Q", len(good)) + good[8:],
            "no JSON": good[:8] + b"x" * size + good[8 + size :], "an unknown dtype": damaged(first, dtype="F31"),
            "more elements than bytes": damaged(first, shape=[1 << 20, 1 << 20]),
            "elements beyond counting": damaged(first, shape=[1 << 40, 1 << 40]),
            "a negative size": damaged(first, shape=[-1, 32]),
            "bytes outside": damaged(first, data_offsets=[0, 1 << 50]),
            "bytes of another": damaged(first, data_offsets=[4, 4 + len(tensors[first][2])]),
        }
        for what, data in cases.items():
            with self.subTest(what):
                file.write_bytes(data)
                settings = {"model.path": "given", "model.weights": "load"}
                self.refused_recipe(settings, "given/model.safetensors", verbs=("run",))

        file.unlink()
        self.refused_recipe({"model.path": "given", "model.weights": "load"}, "given", 'weights = "random"')

    def test_data(self):
        def data(name, *lines):
            (self.home / name).write_text("".join(line + "\n" for line in lines))

        fine = '{"text": "a word"}'
        data("empty.jsonl")
        data("blank.jsonl", "", "  ")
        data("broken.jsonl", fine, fine, "{oops")
        data("keyless.jsonl", fine, '{"txt": "a word"}')
        data("array.jsonl", "[1]")
        data("list.json", "[", fine, "]")
        data("long.jsonl", fine, json.dumps({"prompt": "p" * 30, "completion": "c" * 30}))
        data("few.jsonl", fine)
        (self.home / "latin.jsonl").write_bytes(b'{"text": "caf\xe9"}\n')
        for name, *says in [
            ("nowhere.jsonl", "No such file|not a file here"), ("empty.jsonl", "is empty"),
            ("blank.jsonl", "no record"), ("broken.jsonl", ":3: ", "not JSON", "column"),
            ("keyless.jsonl", ":2: ", "text", "prompt"), ("array.jsonl", ":1: "),
            ("list.json", r"one JSON array; .* list.json > list.jsonl\n"), ("latin.jsonl", ":1: ", "UTF-8"),
            ("long.jsonl", ":2: ", r"6\d tokens", "32", "data.row|--row"), ("few.jsonl", "train.batch is 8", "1 row"),
        ]:
            with self.subTest(name):
                says = [rf"{re.escape(name)}{say}" if say[0] == ":" else say for say in says]
                self.refused_recipe({"data.train": name}, *says, verbs=("run",))
                if name != "few.jsonl":
                    self.refused(["prepare", name, "out.safetensors", "--row", "32"], *says)
                    self.assertFalse((self.home / "out.safetensors").exists())

    def test_layouts(self):
        # Before data are tokenised, which takes longest.
        (self.home / "unread.jsonl").write_text("{oops\n")
        for settings, *says in [
            ({"pipeline.stages": 5}, "pipeline.stages is 5", "only 4"),
            ({"data.row": 65, "data.train": "unread.jsonl"}, "data.row is 65", "rows of up to 64 tokens"),
            ({"hosts.simulate.delay": "1ms", "hosts.simulate.link": "boundary 0>1"},
             'hosts.simulate.link = "boundary 0>1"', "one of .*boundary 0.0>1.0"),
            ({"pipeline.stages": 3, "hosts.ports": "47000-47000"}, "hosts.ports is 47000-47000, 1 in all, but host localhost needs 3 "),
            ({"pipeline.partition": [[0, 1], [3, 3]]}, "pipeline.partition", "2"),
            ({"pipeline.partition": [[0, 1], [2, 4]]}, "pipeline.partition"),
            ({"pipeline.partition": [[0, 3]]}, "pipeline.partition", "pipeline.stages"),
            ({"pipeline.chunks": 2}, "1f1b", "one chunk a stage", "interleaved"),
            ({"pipeline.schedule": "interleaved", "pipeline.chunks": 3}, "3 chunks each", "only 4", "4 chunks in all"),
            ({"pipeline.schedule": "interleaved", "pipeline.partition": [[0, 1], [2, 3]], "pipeline.chunks": 2},
             "2 ranges", "pipeline.chunks 2"),
        ]:
            with self.subTest(settings):
                self.refused_recipe(settings, *says)

    def test_more_threads_than_cores_are_refused(self):
        cores = len(os.sched_getaffinity(0))
        self.refused_recipe(
            {"pipeline.threads": cores + 1},
            rf"pipeline.threads is {cores + 1} \(bad\.toml:\d+:\d+\), but host localhost has {cores} cores?;",
            f"set it to {cores} ",
        )
        # A runtime that is told to binds the launcher's thread to one core; the host has the others.
        recipe = self.write_recipe("bound", {"pipeline.threads": cores})
        bound = subprocess.run([self.program, "plan", recipe], cwd=self.home, capture_output=True, text=True,
                               env={**os.environ, "OMP_PROC_BIND": "true"})
        self.assertEqual(bound.returncode, 0, bound.stderr)

    def test_a_run_with_more_threads_than_a_new_host_has_cores_goes_on_with_a_warning(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("this machine has one core")
        self.train("moved", {"pipeline.threads": 2, "pipeline.stages": 1, "train.steps": 2})
        words = ["taskset", "-c", str(min(os.sched_getaffinity(0))), self.program]
        resumed = [*words, "resume", "runs/moved", "--set", "train.steps=3"]
        done = subprocess.run(resumed, cwd=self.home, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        warnings = [event["text"] for event in self.run_of("moved").events("stage_event") if event["name"] == "threads"]
        self.assertEqual(len(warnings), 1)
        self.assertIn("host localhost has 1 core; the run keeps its threads", warnings[0])

    def test_numbers_of_flags_are_refused_with_their_range(self):
        for words, most in (
            (("resume", "runs/mine", "--from", "-1"), 2**40), (("checkpoint", "verify", "runs/mine", "--step", "-1"), 2**40),
            (("checkpoint", "copy", "runs/mine", "copy", "--step", 2**41), 2**40), (("logs", "runs/mine", "--last", "-1"), 10**9),
            (("generate", "runs/mine", "--prompt", "x", "--seed", "-1"), 2**63 - 1),
        ):
            with self.subTest(words):
                code, out, err = self.strait(*words)
                self.assertEqual((code, out), (10, ""), err)
                self.assertRegex(err, rf"\Astrait: [\w ]+: --\w+: Value {words[-1]} not in range 0 to {most}; see: ")

    def test_reports_taken_port_before_training(self):
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            held.listen()
            port = held.getsockname()[1]
            untied = self.write_model("untied", tie_word_embeddings=False)  # so that there is one link
            recipe = self.write_recipe("ports", {"hosts.ports": f"{port}-{port}", "model.path": str(untied)})
            code, out, err = self.strait("run", recipe)
        self.assertEqual(code, 10, out + err)
        self.assertRegex(out, rf"strait: stage \d.0 \(.*\): port {port} on \S+ is taken")
        self.assertRegex(out, rf"process {os.getpid()}\b")
        self.assertEqual(self.run_of("ports").metrics(), [])

    def test_existing_and_missing_runs(self):
        for verb in ("resume", "status", "stop", "eval"):
            self.refused([verb, "runs/none"], "runs/none")
        self.refused(["generate", "runs/none", "--prompt", "x"], "runs/none")
        self.refused(["export", "runs/none", "out"], "runs/none")
        self.assertFalse((self.home / "runs").exists())

        live = self.start("mine", {"train.steps": 100_000})
        live.at_step(1)
        for words in (["run", "mine.toml"], ["run", "mine.toml", "--replace"], ["resume", "runs/mine"]):
            with self.subTest(words):
                self.refused(words, "runs/mine", rf"live run \(process {live.process.pid}")
        live.at_step(live.run.metrics()[-1]["step"] + 1)
        live.end_by(signal.SIGINT, 0)

        before = live.run.curve()
        self.refused(["run", "mine.toml"], "already holds a run", "strait resume", "--replace")
        self.assertEqual(live.run.curve(), before)
        self.refused(["generate", "runs/mine", "--prompt", ""], "prompt", "0 tokens")
        self.refused(["generate", "runs/mine", "--prompt", "x" * 64], "prompt", "64 tokens")
        self.refused(["eval", "runs/mine"], "data.eval", "--data")
        self.refused(["export", "runs/mine", "model"], "model", "exists")
        self.ok("run", "mine.toml", "--replace", "--set", "train.steps=2")
        self.assertEqual(runs.Run(self.home / "runs" / "mine.old-1").curve(), before)
        code, out, err = self.strait("resume", "runs/mine")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, "complete")

    def test_runs_are_listed_and_found_by_their_bare_name(self):
        for words in (["status"], ["watch"]):
            self.assertRegex(self.ok(*words), r"\Athere are no runs here; .*: strait init\n\Z")
        self.train("my run, 1", {"train.steps": 2})  # the recipe's file, of which the run has its name
        self.assertEqual(self.run_of("my-run-1").outcome()["code"], 0)
        for verb in ("status", "watch"):
            line = r"\Aruns/my-run-1  \S+ \S+  done +step 2/2  loss \d.*\nshow one: strait {} runs/my-run-1\n\Z"
            self.assertRegex(self.ok(verb), line.format(verb))
            self.assertRegex(self.ok(verb, "my-run-1"), r"\Aruns/my-run-1: ended with code 0")
        [listed] = json.loads(self.ok("status", "--json"))
        self.assertEqual((listed["run"], listed["state"], listed["step"]), ("runs/my-run-1", "done", 2))
        for words in (["logs"], ["eval", "--data", "train.jsonl"], ["generate", "--prompt", "x"], ["checkpoint", "list"], ["resume"]):
            self.ok(*words, "my-run-1")
        self.refused(["stop", "my-run-1"], "no run is live in runs/my-run-1; see: strait status runs/my-run-1")
        self.refused(["status", "other"], r"other holds no run \(it has no plan.json\); list the runs here: strait status")

    def test_status_shows_no_age_that_the_clock_contradicts(self):
        run = self.train("mine", {"train.steps": 2})
        file = run.path / "status.json"
        status = {**json.loads(file.read_text()), "state": "training"}
        for later, says in ((-3600, r"last update 36\d\d s ago"), (3600, r"last update at \d{4}-\S+ \S+, which this machine's clock has not reached")):
            file.write_text(json.dumps({**status, "updated": time.time() + later}))
            self.assertRegex(self.ok("status", "mine"), rf"its launcher is gone, {says} while training; ")

    def test_refuses_to_resume_changed_plan_or_checkpoint(self):
        launched = self.start("mine", {"train.steps": 100_000})
        launched.at_step(2)
        launched.end_by(signal.SIGINT, 0)
        step = launched.run.checkpoints()[-1]
        shard = next((launched.run.path / "checkpoints" / f"step-{step}").glob("*.safetensors"))
        good = shard.read_bytes()
        shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        out, err = self.ended(32, "resume", "runs/mine")
        self.assertRegex(out + err, re.escape(shard.name))

    def test_plan_has_no_side_effects(self):
        recipe = self.write_recipe("fine", {"pipeline.stages": 3})
        before = sorted(self.home.rglob("*"))
        code, out, err = self.strait("plan", recipe, "--json")
        self.assertEqual((code, err), (0, ""))
        plan = json.loads(out)
        self.assertEqual([p["name"] for p in plan["processes"]], ["0.0", "1.0", "2.0"])
        self.assertEqual(plan["recipe"]["train"]["steps"], 20)
        self.assertTrue(all(link["forward_bytes"] > 0 for link in plan["links"]))
        code, out, err = self.strait("plan", recipe)
        self.assertEqual((code, err), (0, ""))
        for word in ("0.0", "2.0", "embedding", "head", "boundary 0.0>1.0"):
            self.assertIn(word, out)
        self.assertEqual(sorted(self.home.rglob("*")), before)

    def test_too_little_memory_is_one_sentence(self):
        # 80 M parameters with their optimizer need 1.3 GB beside what a process maps anyway.
        big = self.write_model("big", vocab_size=40_000, n_embd=2_048)
        recipe = self.write_recipe("big", {"model.path": str(big), "pipeline.stages": 1})
        limit = 2_300_000 * 1024
        done = subprocess.run([self.program, "run", recipe], cwd=self.home, capture_output=True, text=True,
                              timeout=runs.scaled_timeout(60),
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        self.assertEqual(done.returncode, 50, done.stdout + done.stderr)
        size = r"[\d.]+ [MG]B"
        self.assertRegex(done.stdout,
                         rf"out of memory \({size} more could not be had\); a smaller train.micro_batch, "
                         rf'model.recompute = "layer" or more pipeline.stages need less. Memory: '
                         rf"{size} planned, {size} at the peak, {size} on this host")

    def test_a_low_limit_of_open_files_is_raised_or_named(self):
        """A shell's `ulimit -n` binds softly; ZeroMQ aborts without descriptors."""
        recipe = self.write_recipe("narrow", {"train.steps": 2})
        for hard, code, says in ((4096, 0, "checkpoint at step 2"), (64, 10, r"no more than 64 files open here \(ulimit -Hn\)")):
            done = subprocess.run([self.program, "run", recipe, "--replace"], cwd=self.home, capture_output=True, text=True,
                                  timeout=runs.scaled_timeout(60),
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (24, hard)))
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertRegex(done.stdout + done.stderr, says)

    def test_file_beyond_the_limit_of_its_size_is_named(self):
        limit = 100 * 1024  # enough for rows and the recipe, too little for weights in a checkpoint
        recipe = self.write_recipe("limited", {"checkpoint.every": 2})
        done = subprocess.run([self.program, "run", recipe], cwd=self.home, capture_output=True, text=True,
                              timeout=runs.scaled_timeout(60),
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertIn(done.returncode, (30, 31), done.stdout + done.stderr)
        self.assertRegex(done.stdout + done.stderr, r"cannot write \S*checkpoints/\S+: File too large")

    def test_a_run_that_this_machine_has_too_little_memory_for_is_refused(self):
        huge = self.write_model("huge", n_embd=65_536, n_layer=16)  # 800 billion parameters
        recipe = self.write_recipe("huge", {"model.path": str(huge)})
        code, out, err = self.strait("plan", recipe)
        self.assertEqual((code, err), (0, ""), out)
        self.assertRegex(out, r"\nall processes together need \S+ [GT]B of memory, and this machine has \S+ [GT]B: .*refused\n")
        out, err = self.ended(50, "run", recipe)
        self.assertRegex(out + err, r"host localhost may use \S+ [GT]B, but by the plan its stages need \S+ [GT]B; give it fewer")
        self.assertEqual(self.run_of("huge").processes(), {})
        self.assertNotIn("all processes together", self.strait("plan", self.write_recipe("small"))[1])


# Whether each loads libtorch.
PROGRAMS = {"strait": False, "strait-torch": True, "strait-stage": False, "strait-stage-torch": True}


class OtherBuilds(runs.RunCase):
    def programs(self, content, name="strait-stage"):
        """Copies of the four programs, one of them with this content."""
        folder = self.home / "bin"
        folder.mkdir(exist_ok=True)
        for one in PROGRAMS:
            shutil.copy2(runs.BIN / one, folder)
        (folder / name).write_bytes(content)
        self.program = folder / "strait"

    def test_refuses_stage_of_other_build(self):
        code, out, err = self.strait("--version")
        build = out.split()[-1]
        other = build[:-4] + ("0000" if build[-4:] != "0000" else "1111")
        stage = (runs.BIN / "strait-stage-torch").read_bytes()
        self.assertGreaterEqual(stage.count(build.encode()), 1)
        self.programs(stage.replace(build.encode(), other.encode()), "strait-stage-torch")
        out, _ = self.ended(11, "run", self.write_recipe("mixed"))
        self.assertRegex(out, rf"strait: stage \d\.0 .*{re.escape(other)}.*{re.escape(build)}")
        self.assertEqual(self.run_of("mixed").metrics(), [])

    def test_foreign_stage_program_ends_run(self):
        self.programs(b"#!/bin/sh\necho 'not what you think' >&2\nexit 3\n")
        out, _ = self.ended(70, "run", self.write_recipe("script"))
        self.assertRegex(out, r"strait: stage \d\.0 .*ended with code 3")
        self.assertRegex(out, "not what you think")

    def test_reports_missing_torch_program(self):
        self.programs(b"", "strait-stage-torch")
        (self.program.parent / "strait-stage-torch").unlink()
        out, _ = self.ended(11, "run", self.write_recipe("half"))
        self.assertRegex(out, r"cannot run .*/strait-stage-torch: No such file.*install both again")

    def test_only_what_computes_loads_libtorch(self):
        """Loading it would be most of the cost of a host's agent, or of `strait status`."""
        for name, needs in PROGRAMS.items():
            done = subprocess.run(
                [runs.BIN / name], env={"LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True, text=True,
            )
            self.assertIn("libzmq", done.stdout)
            self.assertEqual("libtorch" in done.stdout, needs, done.stdout)

    def test_only_what_computes_needs_the_program_with_libtorch(self):
        recipe = self.write_recipe("half")
        self.programs(b"", "strait-torch")
        (self.program.parent / "strait-torch").unlink()
        for words in (("run", recipe), ("plan", recipe), ("doctor",), ("generate", "half", "--prompt", "a")):
            _, err = self.ended(11, *words)
            self.assertRegex(err, r"^strait: cannot run \S*/bin/strait-torch: No such file or directory; .*install strait as a whole\n$")
        self.assertFalse((self.home / "runs").exists())
        self.assertIn("there are no runs here", self.ok("status"))
        self.assertIn("exit code 20", self.ok("explain", "20"))
        self.assertIn("--replace", self.ok("help", "run"))
        _, err = self.ended(10, "run", recipe, "--replce")
        self.assertIn("did you mean --replace?", err)

    def test_the_programs_of_strait_say_the_same(self):
        """Where a line is read twice, or says the names of parts that only libtorch's rooms have."""
        def said(program, *words):
            done = subprocess.run([runs.BIN / program, *words], cwd=self.home, capture_output=True, text=True)
            return done.returncode, done.stdout, done.stderr

        keys = []
        for program in ("strait", "strait-torch"):
            self.assertEqual(said(program, "init", "--keys", f"{program}.toml")[0], 0)
            keys.append((self.home / f"{program}.toml").read_text())
        self.assertEqual(*keys)
        for words in (["--version"], ["--help"], ["help", "--man"], ["help", "resume"], ["explain", "codec.forward"],
                      ["explain", "pipeline.schedule"], ["explain", "sync.method"], ["complete", "--", "checkpoint", ""],
                      [], ["rn"], ["run"], ["run", "absent.toml"]):
            self.assertEqual(said("strait", *words), said("strait-torch", *words), words)

    def test_reports_missing_stage_program(self):
        self.programs(b"")
        (self.program.parent / "strait-stage").unlink()
        _, err = self.ended(10, "run", self.write_recipe("none"))
        self.assertRegex(err, r"cannot start stage 0\.0: .*strait-stage.*No such file")


class FullDisk(runs.RunCase):
    STEPS = {"train.steps": 100_000, "checkpoint.every": 5}

    def fill(self, folder):
        """Fills the file system up to the last page."""
        with open(folder / "ballast", "wb", buffering=0) as out:
            try:
                while True:
                    out.write(bytes(4096))
            except OSError:
                pass

    def test_full_checkpoint_disk_ends_run_without_loss(self):
        launched = self.start("full", self.STEPS)
        launched.at_event("checkpoint")
        launched.end_by(signal.SIGINT, 0)
        disk = launched.run.path / "checkpoints"
        kept = self.home / "kept"
        shutil.move(disk, kept)
        self.mount_tmpfs(disk, "-o", "size=4m")
        shutil.copytree(kept, disk, dirs_exist_ok=True)
        self.fill(disk)
        before = launched.run.checkpoints()
        state = launched.run.state(before[-1])

        self.ended(30, "resume", "runs/full")
        failures = launched.run.events("checkpoint_failed")
        self.assertEqual([f["step"] % 5 for f in failures], [0, 0, 0])
        self.assertEqual(len({f["step"] for f in failures}), 3, "training did not go on")
        for word in ("3 checkpoints in a row", "stage", r"bytes|B\b"):
            self.assertRegex(launched.run.outcome()["cause"], word)
        self.assertEqual(launched.run.checkpoints(), before)
        self.assertEqual(launched.run.state(before[-1]), state)

        (disk / "ballast").unlink()
        again = self.launch("resume", "runs/full", name="full")
        again.at_step(failures[-1]["step"] + 1)
        again.end_by(signal.SIGINT, 0)
        self.assertGreater(launched.run.checkpoints()[-1], before[-1])

    def test_full_run_disk_ends_run_with_cause(self):
        self.mount_tmpfs(self.home / "runs", "-o", "size=4m")
        launched = self.start("full", self.STEPS)
        launched.at_event("checkpoint")
        self.fill(self.home / "runs")
        self.assertEqual(launched.end(), 30, launched.output())
        self.assertRegex(launched.output(), "strait: .*3 checkpoints in a row")
        (self.home / "runs" / "ballast").unlink()
        again = self.launch("resume", "runs/full", name="full")
        again.at_training()
        again.end_by(signal.SIGINT, 0)
        # A start for which there is no room leaves nothing that stands in the way of the next one.
        self.fill(self.home / "runs")
        code, out, err = self.strait("run", self.write_recipe("none", self.STEPS))
        self.assertIn(code, (30, 31), out + err)
        self.assertEqual(sorted(os.listdir(self.home / "runs")), ["ballast", "full"])


if __name__ == "__main__":
    runs.main()
