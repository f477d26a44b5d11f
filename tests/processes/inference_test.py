"""A trained model is asked in one process and over the stages of its run: the same answers, from any cut."""

import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request

import control_group
import runs

try:
    import tokenizers
except ImportError:
    tokenizers = None

EXPERTS_LIMIT = 128 << 20  # bytes; the weights have as many, and the program about 60 MB
PROMPTS = ["3 May 1999 -> ", "12", "What is it?", "a", "b b b b b b b b"]


class Inference(runs.RunCase):
    TRAINED = {"train.steps": 3, "data.eval": "eval.jsonl", "checkpoint.every": 3}
    CUTS = {
        "three stages": {"pipeline.stages": 3},
        "two chunks a stage": {"pipeline.stages": 2, "pipeline.schedule": "interleaved", "pipeline.chunks": 2},
        "two replicas, recomputed, compressed": {
            "pipeline.stages": 2, "pipeline.replicas": 2, "train.batch": 8, "model.recompute": "layer",
            "codec.forward": "delta", "codec.backward": "fixed"},
        "one stage": {"pipeline.stages": 1},
    }

    def setUp(self):
        super().setUp()
        self.write_data("eval.jsonl", records=23)
        lines = [{"prompt": text} for text in PROMPTS]
        lines.append({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"},
                                   {"role": "user", "content": "no"}]})
        (self.home / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")

    def test_completions_shown_behind_a_run_are_of_the_first_file_with_prompts(self):
        (self.home / "book.txt").write_text("A text has no prompts. " * 100)
        launched = self.start("asked", {**self.TRAINED, "data.eval": ["book.txt", "eval.jsonl"]})
        self.assertEqual(launched.end(), 0, launched.output())
        self.assertRegex(launched.output(), r"completions of evaluation prompts \(\d of 6 right\)")

    def test_the_checkpoint_of_a_live_run_is_chosen_when_the_prompts_are_read(self):
        launched = self.start("live", {**self.TRAINED, "train.steps": 100_000, "checkpoint.every": 1, "checkpoint.keep": 20})
        launched.at_event("checkpoint")
        os.mkfifo(self.home / "slow.jsonl")
        asked = self.launch("generate", launched.run.path, "--prompts", "slow.jsonl", "--max-tokens", 2, name="live")
        with open(self.home / "slow.jsonl", "w") as prompts:  # once it is opened for reading, too
            saved = len(launched.run.events("checkpoint"))
            asked.wait_for("25 more checkpoints", lambda: len(launched.run.events("checkpoint")) > saved + 25)
            prompts.write('{"prompt": "3 May"}\n')
        self.assertEqual(asked.end(), 0, asked.output())
        launched.end_by(signal.SIGINT, 0)

    def test_a_stop_behind_the_last_step_ends_the_completions_alone(self):
        launched = self.start("ended", {**self.TRAINED, "data.eval": ["eval.jsonl"]})
        launched.at_event("ended")
        launched.end_by(signal.SIGINT, 0)
        self.assertIn("export", launched.output())

    def test_libraries_are_initialised_once_with_bounded_waits(self):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "KMP_"))}
        done = subprocess.run([self.program, "generate", "nowhere", "--prompt", "a"], cwd=self.home, capture_output=True,
                              text=True, env={**environment, "OMP_DISPLAY_ENV": "verbose"})
        self.assertEqual(re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr), ["3000"])

    def both(self, verb, run, *words):
        """The output in one process, which has to be that over the stages, too."""
        here = self.ok(verb, run, *words, "--on", "here")
        self.assertEqual(self.ok(verb, run, *words, "--on", "hosts"), here)
        return here

    def test_stages_answer_as_one_process(self):
        for number, (name, keys) in enumerate(self.CUTS.items()):
            with self.subTest(name):
                run = self.train(f"cut{number}", {**self.SETTINGS, **self.TRAINED, **keys})
                before = {path: path.read_bytes() for path in run.path.rglob("*.json*") if path.is_file()}
                path = f"runs/cut{number}"
                scored = json.loads(self.both("eval", path, "--json"))
                self.assertEqual(scored["step"], 3)
                # Of several replicas the sum has another order.
                self.assertAlmostEqual(scored["loss"], run.events("evaluated")[-1]["loss"], delta=1e-6)
                self.both("generate", path, "--prompt", "3 May", "--max-tokens", 9)
                sampled = ("--temperature", 1.5, "--top-k", 50, "--top-p", 0.95, "--min-p", 0.001,
                           "--repetition-penalty", 1.2, "--max-tokens", 12, "--seed", 5)
                lines = [json.loads(line) for line in self.both(
                    "generate", path, "--prompts", "prompts.jsonl", *sampled).splitlines()]
                self.assertEqual([line["number"] for line in lines], [1, 2, 3, 4, 5, 6])
                self.assertEqual(len({line["completion"] for line in lines}), 6)
                after = {path: path.read_bytes() for path in before}
                self.assertEqual([str(path) for path in before if before[path] != after[path]], [])
        self.assert_no_processes_left()

    def assert_streamed_the_same(self, group, blocks, words):
        whole = self.ok(*words)
        done = subprocess.run([self.program, *words], cwd=self.home, capture_output=True, text=True,
                              timeout=runs.scaled_timeout(300), preexec_fn=lambda: group.add(0))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, rf"do not fit into .* of free memory, so \d+ of {blocks} blocks are read")
        self.assertEqual(done.stdout, whole)

    @unittest.skipUnless(control_group.usable(), "needs root, and control groups that it may write")
    def test_a_model_of_twice_the_memory_generates_and_evaluates_the_same(self):
        large = {"n_embd": 768, "n_layer": 12, "n_head": 12}
        self.write_model("large", **large)
        self.train("large", {**self.TRAINED, "model.path": "large", "train.steps": 1, "checkpoint.every": 1})
        values = sum(math.prod(shape) for shape in runs.gpt2_shapes({**self.CONFIG, **large}).values())
        group = control_group.ControlGroup("half", memory=2 * values)
        self.addCleanup(group.close)
        for words in (["generate", "runs/large", "--prompts", "prompts.jsonl", "--max-tokens", "3", "--on", "here"],
                      ["eval", "runs/large", "--on", "here", "--json"]):
            self.assert_streamed_the_same(group, 12, words)
        # Tables that do not fit with what is read cannot be streamed.
        self.write_model("wide", n_embd=256, n_layer=2, n_head=4, vocab_size=100_000)
        self.train("wide", {**self.TRAINED, "model.path": "wide", "train.steps": 1, "checkpoint.every": 1})
        small = control_group.ControlGroup("small", memory=int(1.4 * 4 * 256 * 100_000))
        self.addCleanup(small.close)
        done = subprocess.run([self.program, "eval", "runs/wide", "--on", "here"], cwd=self.home, capture_output=True,
                              text=True, timeout=runs.scaled_timeout(300), preexec_fn=lambda: small.add(0))
        self.assertEqual(done.returncode, 50, done.stderr)
        self.assertRegex(done.stderr, "embedding, head and what is read with them take .*: --on hosts")

    @unittest.skipUnless(control_group.usable(), "needs root, and control groups that it may write")
    def test_a_model_with_many_small_experts_is_streamed_within_the_memory(self):
        sizes = {"hidden_size": 256, "num_hidden_layers": 10, "num_attention_heads": 4, "num_key_value_heads": 2,
                 "head_dim": 64, "intermediate_size": 256, "moe_intermediate_size": 256, "num_experts": 16,
                 "num_experts_per_tok": 2, "vocab_size": 257, "max_position_embeddings": 128}
        (self.home / "experts").mkdir()
        (self.home / "experts/config.json").write_text(json.dumps({"model_type": "qwen3_moe", **sizes}))
        self.train("experts", {**self.TRAINED, "model.path": "experts", "train.steps": 1, "checkpoint.every": 1})
        group = control_group.ControlGroup("experts", memory=EXPERTS_LIMIT)
        self.addCleanup(group.close)
        words = ["generate", "runs/experts", "--prompts", "prompts.jsonl", "--max-tokens", "3", "--on", "here"]
        self.assert_streamed_the_same(group, 10, words)

    def test_stops_and_limits(self):
        self.train("stops", {**self.SETTINGS, **self.TRAINED, "pipeline.stages": 2})
        words = ("generate", "runs/stops", "--prompts", "prompts.jsonl", "--temperature", 3, "--max-tokens", 40)
        lines = [json.loads(line) for line in self.ok(*words).splitlines()]
        self.assertLessEqual({line["end"] for line in lines}, {"length", "end of text"})
        self.assertIn(40, {line["tokens"] for line in lines})
        whole = lines[0]["completion"]
        stop = next(letter for letter in whole[5:] if "!" <= letter <= "~")
        for line, before in zip(self.both(*words[:2], *words[2:], "--stop", "never there", "--stop", stop).splitlines(), lines):
            cut, text = json.loads(line), before["completion"]
            self.assertEqual(cut["completion"], text.partition(stop)[0])
            self.assertEqual(cut["end"], "stop" if stop in text else before["end"])

    def test_bad_prompts_are_refused(self):
        self.train("bad", {**self.SETTINGS, **self.TRAINED})
        for text, *patterns in (
            ('{"prompt": "a"}\n{"text": "b"}\n', r"bad.jsonl:2: expected", "prompt"),
            ("nonsense\n", r"bad.jsonl:1: expected", "not JSON"),
            ('{"x": 1}\n', r'bad.jsonl:1: expected .* neither "prompt" nor "messages"\n'),
            ('{"prompt": "a"}\n{"messages": ["x"]}\n', r'bad.jsonl:2: '),
            ('{"prompt": 7}\n', r'bad.jsonl:1: "prompt" is a number where a string'),
            ('{"messages": 7}\n', r'bad.jsonl:1: "messages" is not a list of'),
            ('{"messages": []}\n', r'bad.jsonl:1: "messages" is not a list of'),
            ('\n{"messages": [{"role": "robot", "content": "a"}]}\n',
             r'bad.jsonl:2: it has the role "robot" \(message 1\), which byte tokens cannot render'),
            ('{"messages": [{"role": "user", "content": 5}]}\n',
             r'bad.jsonl:1: message 1: "content" is a number where a string'),
            ("[]\n", "bad.jsonl:1: expected .* is a list"),
            ("\n \n", "bad.jsonl holds no prompt"),
            ('{"prompt": "a"}\n\n{"prompt": ""}\n', "bad.jsonl:3: the prompt has 0 tokens; 1 to "),
        ):
            (self.home / "bad.jsonl").write_text(text)
            code, out, err = self.strait("generate", "runs/bad", "--prompts", "bad.jsonl", "--on", "here")
            self.assertEqual((code, out), (10, ""), err)
            for pattern in patterns:
                self.assertRegex(err, pattern)
        # The last of them, before anything is started.
        self.assertEqual(self.strait("generate", "runs/bad", "--prompts", "bad.jsonl", "--on", "hosts"), (code, out, err))
        self.assertIn("none.jsonl cannot be read", self.ended(10, "generate", "runs/bad", "--prompts", "none.jsonl")[1])
        for words, says in ((("--prompts", "runs"), "runs is a directory"),
                            (("--prompt", "a", "--stop", ""), "--stop is empty"),
                            (("--prompt", "a", "--temperature", "nan"), "nan is no number from 0 to 100"),
                            (("--prompt", "a", "--repetition-penalty", "nan"), "nan is no number from 0.01 to 100"),
                            (("--prompt", "a", "--on", "foo"), "--on: foo not in {auto,here,hosts}"),
                            (("--prompt", "a", "--on", "1"), "--on: 1 not in {auto,here,hosts}")):
            code, out, err = self.strait("generate", "runs/bad", *words)
            self.assertEqual((code, out), (10, ""), err)
            self.assertIn(says, err)

    def test_an_ended_run_without_checkpoint_is_not_waited_for(self):
        run = self.train("none", {**self.SETTINGS, **self.TRAINED})
        for checkpoint in (run.path / "checkpoints").iterdir():
            shutil.rmtree(checkpoint)
        code, out, err = self.strait("generate", "runs/none", "--prompt", "a")
        self.assertEqual((code, out), (10, ""), err)
        self.assertIn("no complete checkpoint, and the run has ended; begin again with: strait run runs/none/recipe.toml --replace", err)

    def test_killed_stage_is_named(self):
        self.train("killed", {**self.SETTINGS, **self.TRAINED, "pipeline.stages": 2})
        (self.home / "many.jsonl").write_text('{"prompt": "abc"}\n' * 5000)
        asked = self.launch("generate", "runs/killed", "--prompts", "many.jsonl", "--on", "hosts", name="killed")
        asked.wait_for("answers", lambda: asked.output().count("completion") > 5)
        victims = runs.descendants(runs.processes(), asked.process.pid)
        self.assertEqual(len(victims), 2)
        os.kill(max(victims), signal.SIGKILL)
        self.assertEqual(asked.end(), 20, asked.output()[-2000:])
        self.assertRegex(asked.output(), r"stage [01]\.0 .*signal 9")
        self.assert_no_processes_left()

    def test_a_chat_goes_on_until_stdin_ends(self):
        self.train("chatted", {**self.SETTINGS, **self.TRAINED, "pipeline.stages": 2})
        said = []
        for place in ("here", "hosts"):
            done = subprocess.run([self.program, "chat", "runs/chatted", "--on", place, "--max-tokens", "5"], cwd=self.home,
                                  input="hello\n\n" + "x" * 3000 + "\nagain", capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"the chat has 3\d* tokens; .*; the last message was dropped")
            said.append(done.stdout)
        self.assertEqual(said[0], said[1])
        first = json.loads(self.ok("generate", "runs/chatted", "--prompts", self.chat_file("hello"), "--max-tokens", 5, "--on", "here"))
        self.assertTrue(said[0].startswith(first["completion"]), said[0])
        self.assert_no_processes_left()

    def chat_file(self, text):
        (self.home / "chat.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": text}]}))
        return "chat.jsonl"

    def serve(self, run, *words):
        served = self.launch("serve", f"runs/{run}", "--port", 0, *words, name=run)
        served.wait_for("its address", lambda: "/v1;" in served.output())
        url = re.search(r"http://127\.0\.0\.1:\d+/v1", served.output())[0]

        def ask(path, content, raw=None, headers=None):
            body = raw if content is None else json.dumps(content).encode()  # None: by GET
            request = urllib.request.Request(url + path, body, {"Content-Type": "application/json", **(headers or {})})
            try:
                with urllib.request.urlopen(request, timeout=60) as reply:
                    return reply.status, json.load(reply)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)["error"]["message"]
        return served, ask

    def test_completions_over_http_are_those_of_generate(self):
        self.train("served", {**self.SETTINGS, **self.TRAINED, "pipeline.stages": 2})
        served, ask = self.serve("served", "--on", "here")
        (self.home / "two.jsonl").write_text('{"prompt": "3 May"}\n{"prompt": "a"}\n')
        lines = [json.loads(line) for line in self.ok(
            "generate", "runs/served", "--prompts", "two.jsonl", "--max-tokens", 6, "--on", "here").splitlines()]
        question = {"model": "served", "prompt": ["3 May", "a"], "max_tokens": 6, "temperature": 0}
        status, reply = ask("/completions", question)
        self.assertEqual(status, 200, reply)
        self.assertEqual([choice["text"] for choice in reply["choices"]], [line["completion"] for line in lines])
        # As lm_eval asks: the probabilities of a prompt, of text and of token numbers.
        scored = [ask("/completions", {**question, "prompt": prompt, "max_tokens": 1, "echo": True, "logprobs": 1})[1]["choices"][0]
                  for prompt in ("3 May", list(b"3 May"))]
        self.assertEqual(scored[0], scored[1])
        logprobs = scored[0]["logprobs"]
        self.assertTrue(scored[0]["text"].startswith("3 May"))
        self.assertEqual([len(logprobs[key]) for key in ("tokens", "token_logprobs", "top_logprobs")], [6, 6, 6])
        self.assertIsNone(logprobs["token_logprobs"][0])
        for own, top in zip(logprobs["token_logprobs"][1:], logprobs["top_logprobs"][1:]):
            self.assertLessEqual(own, max(top.values()))
            self.assertLess(own, 0)
        sampled = {**question, "prompt": "a", "temperature": 1.5, "seed": 7}
        self.assertEqual(ask("/completions", sampled)[1]["choices"], ask("/completions", sampled)[1]["choices"])
        status, chat = ask("/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0})
        self.assertEqual((status, chat["choices"][0]["message"]["role"]), (200, "assistant"))
        for content, code, says in (
            ({**question, "model": "other"}, 404, 'the model "other" is not here; this is "served"'),
            ({**question, "prompt": "x" * 9000}, 400, "the prompt has 9000 tokens; 1 to "),
            ({**question, "prompt": [5, 1 << 20]}, 400, "the prompt has the token 1048576"),
            ({**question, "prompt": ""}, 400, "the prompt has 0 tokens"),
            ({**question, "prompt": [5, "a", None]}, 400, '"prompt" must be'),
            ({**question, "temperature": "hot"}, 400, '"temperature" must be a number'),
            ({**question, "max_tokens": -1}, 400, '"max_tokens" is -1, but must be'),
            ({**question, "stream": True}, 400, '"stream" can only be false'),
            ({**question, "stop": [""]}, 400, '"stop" must be'), ([question], 400, "not a JSON object"),
        ):
            self.assertEqual(ask("/completions", content)[0], code)
            self.assertIn(says, ask("/completions", content)[1])
        for raw, code, says in ((b"{", 400, "not JSON"), (b"[" * 100_000, 400, "not JSON"), (b"\xff\xfe", 400, "not JSON")):
            status, sentence = ask("/completions", None, raw=raw)
            self.assertEqual((status, says in sentence), (code, True), sentence)
        status, sentence = ask("/completions", None, raw=b"{}", headers={"Content-Length": "99999999999"})
        self.assertEqual(status, 413, sentence)
        self.assertEqual(ask("/nothing", question)[0], 404)
        self.assertEqual(ask("/completions", None)[0], 405, "asked with GET")
        self.assertEqual(ask("/completions", question)[0], 200)
        _, err = self.ended(10, "serve", "runs/served", "--port", re.search(r":(\d+)/", served.output())[1])
        self.assertIn("cannot be listened on", err)
        served.signal(signal.SIGINT)
        served.end()
        self.assert_no_processes_left()

    def test_no_request_over_http_ends_the_others(self):
        self.train("odd", {**self.SETTINGS, **self.TRAINED})
        served, ask = self.serve("odd", "--on", "here")
        plain, chat = '{"prompt": "a", "max_tokens": 2, "seed": 5%s}', '{"messages": [{"role": "user", "content": "x", "w": %s}]}'
        whole = ask("/completions", json.loads(plain % ""))
        self.assertEqual(whole[0], 200, whole)
        for text, says in (
            (r'{"prompt": "a\ud800b"}', "half of a surrogate pair"), (plain % r', "stop": "\ud800"', "half of a surrogate pair"),
            (plain % r', "\ud800": 1', "half of a surrogate pair"), (chat % "NaN", "not finite"), (chat % "1e999", "not finite"),
            (plain % ', "temperature": -Infinity', "not finite"), (chat % ("1" * 1000), "more than 64 bits"),
            (chat % ("1" * 5000), "more than 64 bits"), (chat % ("[" * 200 + "]" * 200), "nested deeper than"),
            (chat % ("[" * 100_000 + "]" * 100_000), "nested too deeply"),
        ):
            for path in ("/completions", "/chat/completions"):
                status, sentence = ask(path, None, raw=text.encode())
                self.assertEqual(status, 400, sentence)
            path = "/chat/completions" if "messages" in text else "/completions"
            self.assertIn(says, ask(path, None, raw=text.encode())[1])
        # More than is taken is read before it is refused: a client that still sends sees no answer.
        for path in ("/completions", "/nothing"):
            status, sentence = ask(path, None, raw=b" " * (32 << 20))
            self.assertEqual(status, 413, sentence)
        self.assertEqual(ask("/completions", json.loads(plain % ""))[1]["choices"], whole[1]["choices"])
        served.signal(signal.SIGINT)
        self.assertIn(served.end(), (130, -signal.SIGINT), served.output())

    def test_options_over_http_are_taken_or_refused(self):
        self.train("options", {**self.SETTINGS, **self.TRAINED})
        served, ask = self.serve("options", "--on", "here")
        plain = {"prompt": "b b b b", "max_tokens": 12, "temperature": 2, "seed": 5}
        chat = {"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 3}

        def text(**more):
            status, reply = ask("/completions", {**plain, **more})
            self.assertEqual(status, 200, reply)
            return reply["choices"][0]["text"]

        (self.home / "one.jsonl").write_text(json.dumps({"prompt": plain["prompt"]}))
        words = ("generate", "runs/options", "--prompts", "one.jsonl", "--max-tokens", 12, "--temperature", 2, "--seed", 5)
        options = {"top_k": 5, "min_p": 0.5, "repetition_penalty": 100}
        for key, value in options.items():
            line = self.ok(*words, f"--{key.replace('_', '-')}", value, "--on", "here")
            self.assertEqual(text(**{key: value}), json.loads(line)["completion"])
            self.assertNotEqual(text(**{key: value}), text(), key)
        self.assertEqual(text(top_k=-1, min_p=0, repetition_penalty=1), text())
        neutral = {"frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "n": 1, "min_tokens": None,
                   "ignore_eos": False, "tools": [], "response_format": {"type": "text"}}
        self.assertEqual(text(**neutral), text())
        status, reply = ask("/chat/completions", {**chat, **neutral, "logprobs": False})
        self.assertEqual((status, reply["usage"]["completion_tokens"]), (200, 3), reply)
        for path, question, more, says in (
            ("/completions", plain, {"frequency_penalty": 0.5}, '"frequency_penalty" can only be 0 here'),
            ("/chat/completions", chat, {"presence_penalty": -1}, '"presence_penalty" can only be 0 here'),
            ("/completions", plain, {"logit_bias": {"5": 100}}, '"logit_bias" can only be {} here'),
            ("/chat/completions", chat, {"logprobs": True}, '"logprobs" can only be false here'),
            ("/chat/completions", chat, {"max_completion_tokens": 0}, '"max_completion_tokens" is 0, but must be from 1'),
            ("/completions", plain, {"top_k": -2}, '"top_k" is -2, but must be'),
            ("/completions", plain, {"min_p": 1.5}, '"min_p" is 1.5, but must be'),
            ("/completions", plain, {"repetition_penalty": 0}, '"repetition_penalty" is 0, but must be'),
        ):
            status, sentence = ask(path, {**question, **more})
            self.assertEqual((status, says in sentence), (400, True), sentence)
        served.signal(signal.SIGINT)
        served.end()

    def test_requests_of_a_client_that_hangs_up_end(self):
        self.write_model("long", n_positions=1024)
        self.train("left", {**self.SETTINGS, **self.TRAINED, "model.path": "long", "pipeline.stages": 2})
        for place in ("here", "hosts"):
            served, ask = self.serve("left", "--on", place)
            port = int(re.search(r":(\d+)/", served.output())[1])
            question = {"prompt": ["3 May", "a"], "max_tokens": 9, "temperature": 0}
            alone = ask("/completions", question)[1]["choices"]
            # Minutes of work: of such texts a token in 257 is the last. Half of the prompts enter by several chunks.
            body = json.dumps({"prompt": ["a" * 600, "a"] * 128, "max_tokens": 1000, "temperature": 100}).encode()
            header = f"POST /v1/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
            for client in clients:
                client.sendall(header + body)
            time.sleep(0.5)
            for client in clients:
                client.close()
            self.assertEqual(ask("/completions", question)[1]["choices"], alone)
            served.signal(signal.SIGINT)
            self.assertIn(served.end(), (130, -signal.SIGINT), served.output()[-2000:])
        self.assert_no_processes_left()

    @unittest.skipUnless(tokenizers, "needs the package tokenizers")
    def test_a_named_template_and_control_tokens_reach_chats_and_requests(self):
        special = ["<|im_start|>", "<|im_end|>"]
        made = tokenizers.Tokenizer(tokenizers.models.BPE())
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = tokenizers.decoders.ByteLevel()
        made.train_from_iterator([], tokenizers.trainers.BpeTrainer(
            show_progress=False, special_tokens=special, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
        self.write_model("named", vocab_size=300)
        made.save(str(self.home / "named/tokenizer.json"))
        (self.home / "named/tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
        chats = [{"messages": [{"role": "user", "content": f"{i}?"}, {"role": "assistant", "content": "a"}]} for i in range(32)]
        (self.home / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
        self.train("named", {**self.SETTINGS, "train.steps": 3, "checkpoint.every": 3, "model.path": "named", "data.row": 64,
                             "data.tokenizer": "named", "data.train": "chats.jsonl", "data.chat_template": "chatml"})
        words = ("--on", "here", "--max-tokens", "4")
        answer = json.loads(self.ok("generate", "runs/named", "--prompts", self.chat_file("3?"), *words))["completion"]
        done = subprocess.run([self.program, "chat", "runs/named", *words], cwd=self.home, input="3?\n", capture_output=True,
                              text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout), (0, answer + "\n"), done.stderr)
        served, ask = self.serve("named", "--on", "here")
        question = {"max_tokens": 4, "temperature": 0}
        status, reply = ask("/chat/completions", {**question, "messages": [{"role": "user", "content": "3?"}]})
        self.assertEqual(status, 200, reply)
        self.assertEqual(reply["choices"][0]["message"]["content"], answer)
        prompt = "<|im_start|>user\n3?<|im_end|>"
        for given in (prompt, made.encode(prompt).ids):
            status, reply = ask("/completions", {**question, "max_tokens": 0, "prompt": given, "echo": True})
            self.assertEqual(status, 200, reply)
            self.assertEqual(reply["choices"][0]["text"], prompt)
        # Without its tokenizer it would refuse every text.
        os.kill(self.script_of(served, "strait-tokenizer.py"), signal.SIGKILL)
        self.outcome(ask)
        self.assertEqual(served.end(), 10, served.output())
        self.assertRegex(served.output(), r"strait: the tokenizer process of .*/named (ended|did not take its input)")
        self.wait_for_no_processes()

    @staticmethod
    def script_of(served, name):
        """The process of a server that runs this script."""
        return next(pid for pid in runs.descendants(runs.processes(), served.process.pid)
                    if name in pathlib.Path(f"/proc/{pid}/cmdline").read_text())

    def test_server_says_that_its_http_side_has_died(self):
        self.train("headless", {**self.SETTINGS, **self.TRAINED, "pipeline.stages": 2})
        for place in ("here", "hosts"):
            with self.subTest(place):
                served, ask = self.serve("headless", "--on", place)
                self.assertEqual(ask("/completions", {"prompt": "a", "max_tokens": 3})[0], 200)
                os.kill(self.script_of(served, "strait-serve.py"), signal.SIGKILL)
                self.assertEqual(served.end(), 20, served.output())
                self.assertIn("strait: strait-serve.py, which answers HTTP requests, has failed: killed by signal 9",
                              served.output())
                self.wait_for_no_processes()

    def test_a_request_over_http_ends_when_a_stage_dies(self):
        self.train("dying", {**self.SETTINGS, **self.TRAINED, "pipeline.stages": 2})
        served, ask = self.serve("dying", "--on", "hosts")
        self.assertEqual(ask("/completions", {"prompt": "a", "max_tokens": 3})[0], 200)
        stages = [pid for pid in runs.descendants(runs.processes(), served.process.pid)
                  if "strait-stage" in pathlib.Path(f"/proc/{pid}/cmdline").read_text()]
        answers = []
        asking = threading.Thread(target=lambda: answers.append(self.outcome(ask)))
        asking.start()
        time.sleep(0.3)
        os.kill(max(stages), signal.SIGKILL)
        self.assertEqual(served.end(), 20, served.output()[-2000:])
        asking.join(60)
        self.assertFalse(asking.is_alive())
        self.assertTrue(answers)
        self.assert_no_processes_left()

    @staticmethod
    def outcome(ask):
        try:
            return [ask("/completions", {"prompt": ["a"] * 200, "max_tokens": 20})[0] for _ in range(100)]
        except OSError as error:  # it is gone
            return error

    def test_batches_change_no_text(self):
        self.train("batched", {**self.SETTINGS, **self.TRAINED, "pipeline.stages": 3})
        (self.home / "varied.jsonl").write_text("".join(
            json.dumps({"prompt": "abc " * (1 + number * 7 % 10)}) + "\n" for number in range(20)))
        words = ("generate", "runs/batched", "--prompts", "varied.jsonl", "--max-tokens", 9, "--temperature", 1.3)
        alone = self.ok(*words, "--batch", 1, "--on", "here")
        for place in ("here", "hosts"):
            self.assertEqual(self.ok(*words, "--batch", 13, "--on", place), alone)

    def test_a_cache_of_8_bits_gives_one_text_over_any_stages(self):
        texts = []
        for stages in (1, 3):
            self.train(f"kept{stages}", {**self.SETTINGS, **self.TRAINED, "pipeline.stages": stages})
            texts.append(self.both("generate", f"runs/kept{stages}", "--prompts", "prompts.jsonl", "--cache", "int8",
                                   "--max-tokens", 12, "--temperature", 1.5, "--batch", 4))
        self.assertEqual(texts[0], texts[1])
        scores = {}
        for cache in ("int8", "float32"):
            served, ask = self.serve("kept3", "--on", "hosts", "--cache", cache)
            question = {"prompt": "What is it?", "max_tokens": 8, "temperature": 0, "echo": True, "logprobs": 1}
            status, reply = ask("/completions", question)
            self.assertEqual(status, 200, reply)
            scores[cache] = reply["choices"][0]["logprobs"]["token_logprobs"][1:11]  # of the prompt
            served.signal(signal.SIGINT)
            served.end()
        self.assertNotEqual(scores["int8"], scores["float32"])
        for one, other in zip(scores["int8"], scores["float32"]):
            self.assertAlmostEqual(one, other, delta=0.05)
        self.assert_no_processes_left()

    def test_a_stop_ends_all(self):
        self.train("stopped", {**self.SETTINGS, **self.TRAINED, "pipeline.stages": 2})
        (self.home / "many.jsonl").write_text('{"prompt": "abc"}\n' * 5000)
        asked = self.launch("generate", "runs/stopped", "--prompts", "many.jsonl", "--on", "hosts", name="stopped")
        asked.wait_for("answers", lambda: asked.output().count("completion") > 5)
        asked.signal(signal.SIGINT)
        self.assertEqual(asked.end(), 130, asked.output()[-2000:])
        self.assert_no_processes_left()


if __name__ == "__main__":
    runs.main()
