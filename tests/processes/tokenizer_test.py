"""A model's own tokenizer from end to end: prepare, plan, run on two stages, generate, evaluate, resume; and what must
not happen unnoticed: another tokenizer, a cache or data that are damaged, a worker that dies."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import unittest
import unittest.mock

import runs

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None

try:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
except ImportError as error:
    print(f"skipped: {error}; ./strait setup installs it")
    sys.exit(77)

TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


class TokenizerRuns(runs.RunCase):
    def setUp(self):
        super().setUp()
        os.environ["STRAIT_CACHE"] = str(self.home / "cache")
        self.addCleanup(os.environ.pop, "STRAIT_CACHE")
        shutil.rmtree(self.home / "model")
        self.write_model("model", vocab_size=400, n_positions=64)
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        made.train_from_iterator(["what is it, user assistant"] * 9, trainers.BpeTrainer(
            vocab_size=300, show_progress=False, special_tokens=["<|im_start|>", "<|im_end|>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        made.save(str(self.home / "model/tokenizer.json"))
        self.tokenizer = made
        (self.home / "model/tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": TEMPLATE}))
        lines = [{"messages": [{"role": "user", "content": f"what is {i}?"}, {"role": "assistant", "content": f"it é {i}"}]}
                 for i in range(32)]
        (self.home / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def words(self, **changes):
        settings = {**self.SETTINGS, "data.row": 64, "train.steps": 4, "checkpoint.every": 2, **changes}
        settings.pop("data.tokenizer", None) if "data.tokenizer" not in changes else None
        text, section = "", ""
        for key in sorted(settings, key=lambda key: ("." in key, key)):
            if "." in key and key.split(".")[0] != section:
                section = key.split(".")[0]
                text += f"[{section}]\n"
            text += f"{key.split('.')[-1]} = {json.dumps(settings[key])}\n"
        (self.home / "tiny.toml").write_text(text)
        return "tiny.toml"

    def refused(self, pattern, *words):
        code, out, err = self.strait(*words)
        self.assertIn(code, (10, 11), out + err)
        self.assertRegex(err, pattern)
        self.assertEqual(err.count("\n"), 1, err)

    def test_a_chat_is_prepared_trained_and_continued(self):
        shown = self.ok("prepare", "train.jsonl", "--model", "model", "--row", "64", "--show", "1")
        self.assertIn("<|im_start|>assistant\n[[it é 0<|im_end|>\n]]", shown)
        self.assertIn("from the cache", self.ok("prepare", "train.jsonl", "--model", "model", "--row", "64"))
        self.assertIn("tiny: gpt2", self.ok("plan", self.words()))
        self.ok("run", self.words())
        self.ok("generate", "runs/tiny", "--prompt", "what is 3?", "--chat", "--max-tokens", "4")
        (self.home / "prompts.jsonl").write_text('{"prompt": "it"}\n' * 100)
        words = ("generate", "runs/tiny", "--prompts", "prompts.jsonl", "--temperature", "100")  # all tokens are as likely
        self.assertNotIn('"end":"stop"', self.ok(*words))
        self.assertIn('"end":"stop"', self.ok(*words, "--stop", "</s>"))  # a control token, of which no text shows
        self.assertIn("target tokens of train.jsonl", self.ok("eval", "runs/tiny", "--data", "train.jsonl"))
        table = runs.read_safetensors(self.home / "runs/tiny/data/train.safetensors")
        self.assertIn("input_ids", table)
        # A resumed run has the bits of one that went on, and needs no tokenizer.
        shutil.move(self.home / "model/tokenizer.json", self.home / "tokenizer.json")
        self.ok("resume", "runs/tiny", "--from", "2")
        gone = r"the tokenizer that made the run's data \(\S*train.jsonl\) is not in \S*model; put it back, or name it with --tok"
        self.refused(gone, "generate", "runs/tiny", "--prompt", "a")
        other = r"made by another tokenizer or chat template \(\w+\) than "
        self.refused(other + "bytes; name the right one", "generate", "runs/tiny", "--prompt", "a", "--tokenizer", "bytes")
        shutil.move(self.home / "tokenizer.json", self.home / "model/tokenizer.json")
        config = self.home / "model/tokenizer_config.json"
        config.write_text(config.read_text().replace("|>assistant", "|>model"))
        self.refused(other + r"that of \S*model is now \(\w+\); name the right one", "generate", "runs/tiny", "--prompt", "a")

    def test_a_base_without_a_template_gets_one_by_name(self):
        prepare = ("prepare", "train.jsonl", "--model", "model", "--row", "64")
        self.ok(*prepare, "own.safetensors")
        (self.home / "model/tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
        self.refused("has no chat template", *prepare)
        self.ok(*prepare, "named.safetensors", "--chat-template", "chatml")
        own, named = (runs.read_safetensors(self.home / f"{name}.safetensors") for name in ("own", "named"))
        self.assertEqual(own, named)
        for template, end in (("alpaca", "### Response:\n[[it é 0<|im_end|>"), ("zephyr", "<|assistant|>\n[[it é 0<|im_end|>"),
                              ("mistral", "[/INST][[ it é 0<|im_end|>")):
            self.assertIn(end, self.ok(*prepare, "--chat-template", template, "--show", "1"))
        self.refused(r"its vocabulary has no <\|start_header_id\|>.*such as alpaca, chatml, mistral, zephyr",
                     *prepare, "--chat-template", "llama3")
        self.refused("chatml.*llama3.*gemma", "run", self.words(**{"data.chat_template": "chatlm"}))
        self.ok("run", self.words(**{"data.chat_template": "chatml"}))
        self.ok("generate", "runs/tiny", "--chat", "--prompt", "what is 3?", "--max-tokens", "2")
        self.refused("own.safetensors has tokens and needs no tokenizer", "eval", "runs/tiny", "--data", "own.safetensors",
                     "--tokenizer", "nope")
        self.ok("export", "runs/tiny", "exported")
        self.assertIn("<|im_start|>", (self.home / "exported/chat_template.jinja").read_text())

    def test_export_has_no_option_for_a_tokenizer_and_advises_none(self):
        shutil.copytree(self.home / "model", self.home / "own")
        self.ok("run", self.words(**{"data.tokenizer": "own"}))
        shutil.rmtree(self.home / "own")
        for words, advice in ((("export", "runs/tiny", "exported"), "put it back\n"),
                              (("eval", "runs/tiny", "--data", "train.jsonl"), "put it back, or name it with --tokenizer")):
            _, out, err = self.strait(*words)
            self.assertRegex(out + err, rf"made the run's data \(\S*train.jsonl\) is not in \S*own; {advice}")
        self.refused('own is not a tokenizer.*name a directory that has them, or "bytes"', "generate", "runs/tiny", "--prompt", "a",
                     "--tokenizer", "own")

    def test_records_that_no_token_ends_are_noted(self):
        (self.home / "texts.jsonl").write_text('{"text": "what is it"}\n{"prompt": "what", "completion": "it"}\n')
        (self.home / "text.txt").write_text("what is it " * 9)
        words = ("prepare", "texts.jsonl", "--model", "model", "--row", "64")
        self.assertNotIn("marks where", self.ok(*words))
        (self.home / "model/tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
        for times in ("first", "from the cache"):
            with self.subTest(times):
                self.assertIn("texts.jsonl: no token marks where a record ends, so the model does not learn to stop there; "
                              "name an eos_token in model/tokenizer_config.json\n", self.ok(*words))
        for data in ("text.txt", "train.jsonl"):
            self.assertNotIn("marks where", self.ok("prepare", data, *words[2:]))

    def test_of_a_chat_that_the_assistant_begins_only_its_text_is_learnt(self):
        config = self.home / "model/tokenizer_config.json"
        (self.home / "first.jsonl").write_text(
            json.dumps({"messages": [{"role": "assistant", "content": "it is"}, {"role": "user", "content": "what"},
                                     {"role": "assistant", "content": "user"}]}) + "\n")
        system = ("{% if messages[0]['role'] == 'system' %}{% set own = true %}{% else %}"
                  "{{ '<|im_start|>system\nit<|im_end|>\n' }}{% endif %}")  # as Qwen 2.5's
        for before, rendered in (("", ""), (system, "<|im_start|>system\nit<|im_end|>\n"), ("{{ '</s>' }}", "</s>")):
            config.write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": before + TEMPLATE}))
            shown = self.ok("prepare", "first.jsonl", "--model", "model", "--row", "64", "--show", "1")
            self.assertIn(f"targets\n{rendered}<|im_start|>assistant\n[[it is<|im_end|>\n]]"
                          "<|im_start|>user\nwhat<|im_end|>\n<|im_start|>assistant\n[[user<|im_end|>\n]]\n", shown)
        # Where the text changes what stands before it, nothing is guessed.
        counting = TEMPLATE.replace("'<|im_start|>' +", "(m.content | upper) + '<|im_start|>' +")
        config.write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": counting}))
        self.refused("first.jsonl:1: message 1: .* depends on that text.*endgeneration", "prepare", "first.jsonl", "--model",
                     "model", "--row", "64")

    def test_a_file_of_prompts_is_rendered_as_records_are(self):
        tools = '[{"z": 1, "a": 2}]'
        templates = self.home / "model/additional_chat_templates"
        templates.mkdir()
        (templates / "tool_use.jinja").write_text(
            f"{{% if tools | tojson != '{tools}' %}}{{{{ raise_exception('other tools') }}}}{{% endif %}}"
            + TEMPLATE.replace("<|im_start|>assistant", "<|im_end|>assistant"))
        self.ok("run", self.words())
        text, parts = '"what is 3?"', '[{"type": "text", "text": "what "}, {"type": "text", "text": "is 3?"}]'
        lines = [f'{{"messages": [{{"role": "user", "content": {content}}}]{more}}}'
                 for content in (text, parts) for more in ("", f', "tools": {tools}')]
        (self.home / "prompts.jsonl").write_text("\ufeff" + "\n".join(lines) + "\n")
        out = self.ok("generate", "runs/tiny", "--prompts", "prompts.jsonl", "--max-tokens", "4").splitlines()
        answers = [json.loads(line)["completion"] for line in out]
        self.assertEqual(len(answers), 4)
        self.assertEqual(answers[:2], answers[2:])
        (self.home / "prompts.jsonl").write_text(lines[1].replace('"z": 1', '"z": 3'))
        self.refused("prompts.jsonl:1: .*other tools", "generate", "runs/tiny", "--prompts", "prompts.jsonl")
        for messages, why in (('[{"role": "usr", "content": "a"}]', 'message 1: .* does not name the role "usr"; did you mean "user"'),
                              ("[]", "is not a list")):
            (self.home / "prompts.jsonl").write_text(f'{lines[0]}\n{{"messages": {messages}}}\n')
            self.refused(f"prompts.jsonl:2: .*{why}", "generate", "runs/tiny", "--prompts", "prompts.jsonl")

    def test_roles_that_the_template_knows_are_passed_through(self):
        config = self.home / "model/tokenizer_config.json"

        def chat_with(role):
            messages = [("user", "what is it"), (role, "is it"), ("assistant", "it is")]
            (self.home / "roles.jsonl").write_text(
                json.dumps({"messages": [{"role": name, "content": text} for name, text in messages]}) + "\n")
            return "prepare", "roles.jsonl", "--model", "model", "--row", "64", "--show", "1"

        # One that renders any role, and one that names its own and leaves others out.
        self.assertIn("<|im_start|>critic\nis it<|im_end|>\n<|im_start|>assistant\n[[it is", self.ok(*chat_with("critic")))
        self.refused('roles.jsonl:1: message 2: .* does not name the role "asistant"; did you mean "assistant"',
                     *chat_with("asistant"))
        named = TEMPLATE.replace("{{ '<|im_start|>' + m.role", "{% if m.role in ['user', 'assistant', 'ipython'] %}{{ '<|im_start|>' + m.role")
        named = named.replace("+ '\n' }}{% endfor %}", "+ '\n' }}{% endif %}{% endfor %}")
        config.write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": named}))
        self.assertIn("<|im_start|>ipython\nis it<|im_end|>", self.ok(*chat_with("ipython")))
        self.refused('roles.jsonl:1: message 2: .* does not know the role "critic"', *chat_with("critic"))
        self.refused(r'roles.jsonl:1: it has the role "critic" \(message 2\), which byte tokens cannot render', "prepare", "roles.jsonl")

    def test_a_virtual_environment_of_another_user_is_one_sentence(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        programs = self.home / "tree/build/release/bin"
        programs.mkdir(parents=True)
        for name in ("strait", "strait-tokenizer.py"):
            shutil.copy2(runs.BIN / name, programs)
        python = self.home / "tree/.venv/bin/python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
        self.home.chmod(0o755)
        (self.home / "tree/.venv").chmod(0o700)
        words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", programs / "strait", "prepare", "train.jsonl",
                 "--model", "model"]
        environment = {name: value for name, value in os.environ.items() if name != "STRAIT_PYTHON"}
        environment["STRAIT_CACHE"] = str(self.home / "none")
        done = subprocess.run(words, cwd=self.home, capture_output=True, text=True, env=environment)
        self.assertEqual((done.returncode, done.stdout), (10, ""), done.stderr)
        self.assertRegex(done.stderr, rf"\Astrait: this user may not run {python}, .*; set STRAIT_PYTHON to another one [^\n]*\n\Z")

    def test_a_run_of_chats_is_asked_as_a_user_does(self):
        out = self.ok("run", self.words(**{"data.hold_out": 0.3}))
        self.assertRegex(out, r"\nanswers to evaluation prompts:\n(  what is \d+\?  >  .*\n){2}")
        command = re.search(r"\ntry +(strait generate runs/tiny --chat --prompt 'what is (\d+)\?')\n", out)
        self.assertTrue(command, out)
        self.assertIn(f"  what is {command[2]}?  >  ", out)
        # As it is, in a shell.
        path = f"{self.program.parent}:{os.environ['PATH']}"
        done = subprocess.run(command[1], shell=True, cwd=self.home, capture_output=True, text=True, env={**os.environ, "PATH": path})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        _, err = self.ended(0, "generate", "tiny", "--prompt", "what is 3?", "--max-tokens", "2")
        self.assertRegex(err, r"\Anote: the run was trained on chats, .* add --chat [^\n]*\n\Z")

    def test_another_tokenizer_is_refused(self):
        self.ok("prepare", "train.jsonl", "a.safetensors", "--model", "model", "--row", "64")
        self.ok("prepare", "train.jsonl", "b.safetensors", "--row", "64")
        self.refused("another tokenizer", "plan", self.words(**{"data.train": "a.safetensors", "data.tokenizer": "bytes"}))
        self.refused("another tokenizer", "plan", self.words(**{"data.train": "a.safetensors", "data.eval": "b.safetensors"}))
        self.refused("another tokenizer", "plan", self.words(**{"data.train": ["a.safetensors", "b.safetensors"]}))
        self.ok("run", self.words(**{"data.train": "a.safetensors"}))
        self.ok("generate", "runs/tiny", "--prompt", "what", "--max-tokens", "2")
        self.refused("another tokenizer", "eval", "runs/tiny", "--data", "b.safetensors")

    def test_without_data_tokenizer_token_files_are_compared_with_the_model(self):
        self.ok("prepare", "train.jsonl", "a.safetensors", "--model", "model", "--row", "64")
        self.ok("prepare", "train.jsonl", "b.safetensors", "--row", "64")
        self.refused('byte tokens.*data.tokenizer = "bytes"', "plan", self.words(**{"data.train": "b.safetensors"}))
        # What is confirmed stays so when the run goes on.
        self.ok("run", self.words(**{"data.train": "b.safetensors", "data.tokenizer": "bytes"}))
        self.ok("resume", "runs/tiny", "--from", "2", "--set", "checkpoint.keep=3")
        self.refused("data are byte tokens, and none of the tokenizer of model; give --tokenizer bytes", "generate", "runs/tiny",
                     "--prompt", "a", "--tokenizer", "model")
        plan = ("plan", self.words(**{"data.train": "a.safetensors"}))
        self.assertEqual(self.strait(*plan)[2], "")
        config = self.home / "model/tokenizer_config.json"
        config.write_text(config.read_text().replace("|>assistant", "|>model"))
        _, err = self.ended(0, *plan)
        self.assertRegex(err, "a.safetensors was made by another tokenizer or chat template .* than that of model is now")
        # In a form that cannot be read there is nothing to compare.
        (self.home / "model/tokenizer.json").rename(self.home / "model/tekken.json")
        self.assertEqual(self.strait(*plan)[::2], (0, ""))

    def test_each_file_of_a_template_counts_for_the_cache(self):
        config = self.home / "model/tokenizer_config.json"
        config.write_text('{"eos_token": "<|im_end|>"}')
        template = self.home / "model/additional_chat_templates/default.jinja"
        template.parent.mkdir()
        words = ("prepare", "train.jsonl", "--model", "model", "--row", "64", "--show", "1")
        template.write_text(TEMPLATE)
        first = self.ok(*words)
        self.assertIn("from the cache", self.ok(*words))
        template.write_text(TEMPLATE.replace("|>assistant", "|>model"))
        changed = self.ok(*words)
        self.assertNotIn("from the cache", changed)
        self.assertNotEqual(changed, first)
        template.rename(template.with_name("other.jinja"))
        self.refused("has no chat template", *words)

    def test_a_damaged_cache_is_made_anew(self):
        first = self.ok("prepare", "train.jsonl", "--model", "model", "--row", "64")
        [file] = (self.home / "cache/tokens").iterdir()
        whole = file.read_bytes()
        file.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
        self.assertEqual(self.ok("prepare", "train.jsonl", "--model", "model", "--row", "64"), first)
        self.assertEqual(file.read_bytes(), whole)
        file.write_bytes(whole[:100])
        self.assertEqual(self.ok("prepare", "train.jsonl", "--model", "model", "--row", "64"), first)

    def test_half_of_a_preparation_is_not_taken_for_the_whole(self):
        words = ("plan", self.words(**{"data.hold_out": 0.3}), "--json")
        # Not the whole plan: the speed of a CPU is measured again as long as other programs use it.
        def rows():
            plan = json.loads(self.ok(*words))
            return plan["train"], plan["eval"]

        first = rows()
        cached = sorted((self.home / "cache/tokens").iterdir())
        self.assertEqual(len(cached), 2)
        os.environ["STRAIT_PYTHON"] = "/bin/false"
        self.addCleanup(os.environ.pop, "STRAIT_PYTHON", None)
        self.assertEqual(rows(), first)  # tokenises nothing
        for file in cached:
            whole = file.read_bytes()
            file.unlink()
            self.refused("tokenizer process", *words)
            file.with_name(file.name + ".tmp-1").write_bytes(whole)
            self.refused("tokenizer process", *words)
            file.with_name(file.name + ".tmp-1").rename(file)
        os.environ["STRAIT_PYTHON"] = sys.executable
        # Killed while the tokenizer works. It has work for seconds, so that no row is written before the kill.
        for file in cached:
            file.unlink()
        with open(self.home / "train.jsonl", "a") as file:
            file.write("".join(json.dumps({"text": f"what {i} " * 9}) + "\n" for i in range(300000)))
        launched = self.launch(*words)
        launched.wait_for("a tokenizer process", lambda: len(self.run_processes()) > 1)
        launched.signal(signal.SIGKILL)
        launched.end()
        self.assertEqual(list((self.home / "cache/tokens").iterdir()), [])
        self.wait_for_no_processes()

    def test_the_cache_is_pruned_by_size_and_age(self):
        self.ok("prepare", "train.jsonl", "--model", "model", "--row", "64")
        cache = self.home / "cache/tokens"
        [old] = cache.iterdir()
        (cache / "killed.safetensors.tmp-1").write_text("left by a process that was killed")
        for name in ("killed.safetensors.tmp-1", old.name):
            os.utime(cache / name, (time.time() - 61 * 86400,) * 2)
        out = self.ok("prepare", "train.jsonl", "--model", "model", "--row", "32", "--too-long", "drop")
        self.assertIn("removed 2 old files", out)
        [new] = cache.iterdir()
        self.assertNotEqual(new, old)
        os.environ["STRAIT_CACHE_GB"] = "0.000001"
        self.addCleanup(os.environ.pop, "STRAIT_CACHE_GB")
        self.assertIn("removed 1 old file ", self.ok("prepare", "train.jsonl", "--model", "model", "--row", "64"))
        self.assertEqual([file.name for file in cache.iterdir()], [old.name])

    def test_refusals_name_what_to_do(self):
        (self.home / "model/tokenizer_config.json").write_text("{}")
        self.refused("train.jsonl:1: .*has no chat template", "plan", self.words())
        os.environ["STRAIT_PYTHON"] = "/bin/false"
        self.addCleanup(os.environ.pop, "STRAIT_PYTHON", None)
        self.refused("tokenizer process of .* ended|did not take", "plan", self.words())
        (self.home / "model/tokenizer.json").rename(self.home / "model/tekken.json")
        self.refused("tekken.json and no tokenizer.json.*AutoTokenizer", "plan", self.words())

    def test_answers_of_another_program_are_refused(self):
        """STRAIT_PYTHON may be any program; each answer is the first to every request."""
        python = self.home / "other"
        token = b"\1\0\0\0"
        for head, body, say in [
            ("{}", b"", "is not understood"),
            ('{"ends": 5}', b"", "is not understood"),
            ('{"error": 5}', b"", "is not understood"),
            ('{"body": -1}', b"", "impossible size"),
            ('{"template": "", "ends": [], "ends_records": true, "body": 4, "counts": [5], "targets": [[]]}', token, "fewer tokens than it counted"),
            ('{"template": "", "ends": [], "ends_records": true, "body": 4, "counts": [1], "targets": [[[0, 9]]]}', token, "targets outside of a record"),
            ('{"template": "", "ends": [], "ends_records": true, "error": "no", "record": 99999}', b"", "names a record"),
        ]:
            answer = len(head).to_bytes(4, "little") + head.encode() + body
            (self.home / "answers").write_bytes(answer * 20)
            python.write_text("#!/bin/sh\ncat answers\nexec cat >/dev/null\n")
            python.chmod(0o755)
            with self.subTest(head), unittest.mock.patch.dict(os.environ, STRAIT_PYTHON=str(python)):
                self.refused("the tokenizer process of .*" + say, "plan", self.words())

    def test_packages_of_pip_user_are_found_and_those_of_PYTHONPATH_are_not(self):
        """With a Python that has the packages in the user's home alone, as pip install --user puts them there."""
        bare = getattr(sys, "_base_executable", sys.executable)
        bad = self.home / "bad"
        bad.mkdir()
        (bad / "jinja2.py").write_text("raise SystemExit('of PYTHONPATH')\n")
        with unittest.mock.patch.dict(os.environ, HOME=str(self.home), STRAIT_PYTHON=bare):
            asked = subprocess.run([bare, "-E", "-m", "site", "--user-site"], stdout=subprocess.PIPE, text=True)
            user = pathlib.Path(asked.stdout.strip())
            user.mkdir(parents=True)
            (user / "all.pth").write_text(sysconfig.get_path("purelib") + "\n")
            os.environ["PYTHONPATH"] = str(bad)
            self.ok("prepare", "train.jsonl", "--model", "model", "--row", "64")

    def test_long_records_are_counted(self):
        with open(self.home / "train.jsonl", "a") as file:
            file.write(json.dumps({"prompt": "a", "completion": "it " * 200}) + "\n")
        self.refused("train.jsonl:33: .*--too-long", "prepare", "train.jsonl", "--model", "model", "--row", "64")
        for rule, word in (("drop", "1 dropped"), ("truncate", "1 truncated"), ("split", "1 split")):
            out = self.ok("prepare", "train.jsonl", "--model", "model", "--row", "64", "--too-long", rule)
            self.assertIn(f"longer than a row of 64 tokens: {word}", out)

    def write_table(self, path, records, **options):
        (self.home / path).parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), self.home / path, **options)

    def prepared(self, data, tokenizer="model"):
        self.ok("prepare", data, "made.safetensors", "--row", "512", *(["--model", "model"] if tokenizer else []))
        table = runs.read_safetensors(self.home / "made.safetensors")
        (self.home / "made.safetensors").unlink()
        return {name: table[name] for name in ("input_ids", "document", "loss_mask")}

    @unittest.skipIf(pyarrow is None, "needs pyarrow; ./strait setup installs it")
    def test_rows_of_Parquet_are_those_of_the_same_records_in_JSONL(self):
        template = TEMPLATE.replace("m.content +", "(m.content | default('-')) + m | list | string + m.tool_calls | default('') | string +")
        (self.home / "model/tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": template}))
        call = {"function": {"name": "add", "arguments": {"a": 1}}}
        other = {"function": {"name": "now", "arguments": {"zone": "é"}}}
        kinds = {
            # The struct of a message has the keys of all of them.
            "chats": [{"messages": [{"role": "user", "content": f"what is {i}?"},
                                    {"role": "assistant", "content": None, "tool_calls": [call if i % 2 else other]},
                                    {"role": "tool", "content": "7", "name": "add"},
                                    {"role": "assistant", "content": f"it é {i}", "weight": i % 3}],
                       "prompt": f"what is {i}?", "picture": b"\xff\x00"} for i in range(12)],
            "pairs": [{"prompt": f"a {i} ", "completion": "b\n" * (i % 5), "system": None} for i in range(40)],
            "texts": [{"text": f"it is {i}\n" * 9, "when": None} for i in range(40)],
            "turns": [{"conversations": [{"from": "human", "value": "what"}, {"from": "gpt", "value": f"it {i}"}]}
                      for i in range(7)],
            "answers": [{"instruction": f"what {i}", "input": "it" if i % 2 else None, "output": "user"} for i in range(9)],
        }
        for kind, records in kinds.items():
            self.write_table(f"{kind}.parquet", records, row_group_size=5)
            kept = [{k: v for k, v in one.items() if isinstance(v, (str, list))} for one in records]
            (self.home / f"{kind}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept))
            for tokenizer in ("model", None):
                if kind == "chats" and tokenizer is None:
                    continue  # calls of tools need a template
                with self.subTest(kind, tokenizer=tokenizer):
                    rows = self.prepared(f"{kind}.jsonl", tokenizer)
                    self.assertEqual(self.prepared(f"{kind}.parquet", tokenizer), rows)
        self.assertIn("from the cache", self.ok("prepare", "texts.parquet", "--model", "model", "--row", "512"))

    @unittest.skipIf(pyarrow is None, "needs pyarrow; ./strait setup installs it")
    def test_a_data_set_of_several_Parquet_files_is_trained_on(self):
        records = [{"prompt": f"what {i} ", "completion": f"it {i % 7}"} for i in range(90)]
        for part in range(3):
            self.write_table(f"set/data/train-0000{part}-of-00003.parquet", records[part::3])
        self.write_table("set/data/validation-00000-of-00001.parquet", [{"text": "what is it?"}] * 20)
        self.write_table("set/data/test-00000-of-00001.parquet", [{"text": "no"}])
        names = [f"set/data/train-0000{part}-of-00003.parquet" for part in range(3)]

        def planned(train, **changes):
            plan = json.loads(self.ok("plan", self.words(**{"data.train": train, **changes}), "--json"))
            return [plan[side]["hash"] for side in ("train", "eval") if plan.get(side)]

        listed = planned(names, **{"data.eval": "set/data/validation-00000-of-00001.parquet", "train.eval_every": 4})
        self.assertEqual(planned("set", **{"data.eval": "set", "train.eval_every": 4}), listed)
        self.assertEqual(planned("set/data/train-*.parquet"), listed[:1])
        self.assertEqual(planned(["set/data/train-*[12]-of-*.parquet", names[0]]), planned([*names[1:], names[0]]))
        held = {"data.hold_out": 0.2, "train.eval_every": 4}
        self.ok("run", self.words(**{"data.train": "set", **held}))
        self.ok("resume", "runs/tiny", "--from", "2", "--set", "checkpoint.keep=3")
        self.refused("train-00000-of-00003.parquet is listed twice", "plan", self.words(**{"data.train": ["set", names[0]]}))
        self.refused(r"no file here \(.*\) matches set/x\*", "plan", self.words(**{"data.train": "set/x*"}))
        (self.home / "empty").mkdir()
        self.refused("empty is a directory without Parquet or JSONL files whose names begin with train;", "plan", self.words(**{"data.train": "empty"}))

    @unittest.skipIf(pyarrow is None, "needs pyarrow; ./strait setup installs it")
    def test_Parquet_that_cannot_be_read_is_refused_in_a_sentence(self):
        self.write_table("good.parquet", [{"text": f"it is {i}"} for i in range(400)], row_group_size=50)
        whole = (self.home / "good.parquet").read_bytes()
        self.write_table("columns.parquet", [{"question": "a", "answer": "b"}])
        self.write_table("null.parquet", [{"text": "a"}, {"text": None}])
        self.write_table("bytes.parquet", [{"text": b"caf\xe9"}])
        files = {"short.parquet": whole[:-40], "holed.parquet": whole[:200] + b"\0" * 400 + whole[600:], "lines.parquet": b'{"text": "a"}\n',
                 "pointer.parquet": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "table.jsonl": whole}
        for name, data in files.items():
            (self.home / name).write_bytes(data)
        for name, say in {
            "short.parquet": "short.parquet cannot be read as a Parquet file, so it may be damaged or cut short; get it again",
            "holed.parquet": "holed.parquet cannot be read as a Parquet file",
            "lines.parquet": "lines.parquet is named as a Parquet file and does not begin as one",
            "pointer.parquet": "is only git's pointer to one; get it with: git lfs pull",
            "table.jsonl": "table.jsonl looks like a Parquet table.*; rename it with: mv -n table.jsonl table-new.parquet",
            "columns.parquet": "columns.parquet has the columns question, answer, and none that a record is made of",
            "null.parquet": "null.parquet:2: a record is an object with",
            "bytes.parquet": "bytes.parquet:1: a text is not UTF-8",
        }.items():
            for model in ((), ("--model", "model")):
                with self.subTest(name, model=model):
                    self.refused(say, "prepare", name, "--row", "64", *model)
        bare = getattr(sys, "_base_executable", sys.executable)
        if subprocess.run([bare, "-E", "-c", "import pyarrow"], stderr=subprocess.DEVNULL).returncode:
            with unittest.mock.patch.dict(os.environ, STRAIT_PYTHON=bare):
                self.refused("good.parquet is read with the package pyarrow, which .* lacks; install it with .* -m pip install "
                             "pyarrow", "prepare", "good.parquet", "--row", "64")


if __name__ == "__main__":
    runs.main()
