"""Damaged and hostile files of a tokenizer: the worker process answers each folder with a tokenizer or one sentence, in
bounded time and memory, and goes on. STRAIT_SEED chooses the inputs, STRAIT_FUZZ_RUNS how many."""

import json
import os
import pathlib
import random
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

try:
    import jinja2  # noqa: F401, of the worker
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
except ImportError as error:
    print(f"skipped: {error}; ./strait setup installs it")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED = int(os.environ.get("STRAIT_SEED", random.randrange(1 << 32)))
RUNS = int(os.environ.get("STRAIT_FUZZ_RUNS", 20_000 if os.environ.get("STRAIT_CAMPAIGNS") else 600))
ANSWER_SECONDS = 60  # on a busy machine; rendering alone may take 5
MOST_MEMORY = 1 << 30  # bytes, resident

TEMPLATE = ("{% for m in messages %}{{ '<s>' + m.role + '\n' }}{% generation %}{{ m.content }}{% endgeneration %}"
            "{{ '</s>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}")
# Pieces that templates of strangers may have.
FRAGMENTS = ["{{", "}}", "{%", "%}", "{% for i in range(10**9) %}", "{% endfor %}", "{{ ''.__class__.__mro__ }}",
             "{{ messages.__init__.__globals__ }}", "{{ 'x' * 10**9 }}", "{{ 9**9**9 }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
             "{{ raise_exception('no') }}", "{{ messages | tojson }}", "{{ strftime_now('%Y') }}", "{{ '%s' | format(1, 2) }}",
             "{% include '/etc/passwd' %}", "{% set ns = namespace(x=messages) %}{{ ns.x }}", "{% generation %}",
             "{% endgeneration %}", "{{ [1] | map(attribute='x') | list }}", "{{ cycler }}", "{{ lipsum(n=100) }}", "\ud800".encode(
                 "utf-8", "surrogatepass").decode("latin-1"), "{{ 1 / 0 }}", "{{ messages[10**9] }}", "{% break %}"]
ODD_VALUES = [None, True, False, 0, -1, 1, 1 << 31, 1 << 63, 1 << 64, 1e308, 0.5, "", "a", "\x00", "</s>", "x" * 5000, [], {}, [[]], [{}],
              {"content": 1}, {"content": "</s>"}, ["</s>"], "(" * 200, "[a-", "(a*)*b"]


def write_seed_folder(folder):
    """A small byte-level BPE, in both of the forms that are read, and one of SentencePiece."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(["what is it, user assistant"] * 9, trainers.BpeTrainer(
        vocab_size=280, show_progress=False, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.save(str(folder / "tokenizer.json"))
    made.model.save(str(folder))
    config = {"eos_token": "</s>", "bos_token": {"content": "<s>"}, "add_bos_token": True, "chat_template": TEMPLATE,
              "added_tokens_decoder": {"0": {"content": "<s>", "special": True}}, "tokenizer_class": "GPT2Tokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": "</s>"}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1]}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    kinds = [("<s>", 3), ("</s>", 3), ("<unk>", 2), ("<tag>", 4), *((f"<0x{i:02X}>", 6) for i in range(256)),
             *((text, 1) for text in ("▁i", "is", "▁is", "it", *"▁whatisuer,n"))]
    pieces = [field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", -i) + bytes([0x18, kind]))
              for i, (text, kind) in enumerate(kinds)]
    settings = field(2, b"\x18\x02\x98\x02\x01") + field(3, b"\x20\x00")  # BPE with bytes; spaces stay
    (folder / "tokenizer.model").write_bytes(b"".join(pieces) + settings)


def field(number, content):
    """Of protobuf; content of less than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def places(value, path=()):
    """Paths to everything inside a JSON value."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from places(one, (*path, key))


def change_value(choose, text):
    """Another value at one place of a JSON text, or nothing there. The same text if it is damaged already."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text.decode("utf-8", "replace")
    path = choose.choice(list(places(value))[:400])
    new = choose.choice(ODD_VALUES)
    if not path:
        return json.dumps(new)
    owner = value
    for key in path[:-1]:
        owner = owner[key]
    if choose.random() < 0.3:
        del owner[path[-1]]
    else:
        owner[path[-1]] = new
    return json.dumps(value)


def damage(choose, file):
    data = file.read_bytes()
    kind = choose.randrange(6)
    if kind <= 2 and file.suffix == ".json":
        data = change_value(choose, data).encode("utf-8", "replace")
    elif kind <= 2:
        at = choose.randrange(len(data) + 1)
        data = data[:at] + choose.choice(FRAGMENTS).encode("utf-8", "replace") + data[at:]
    elif kind == 3:
        data = data[:choose.randrange(len(data) + 1)]
    elif kind == 4 and data:
        data = bytearray(data)
        for _ in range(choose.randint(1, 8)):
            data[choose.randrange(len(data))] = choose.randrange(256)
    else:
        data = choose.choice([b"", b"[" * 100_000, b'{"a":' * 50_000, b"null", b"1e999", bytes(1000), b"\xff\xfe"])
    file.write_bytes(bytes(data))


class Worker:
    def __init__(self):
        script = ROOT / "launcher/tokenizer/strait-tokenizer.py"
        self.process = subprocess.Popen([sys.executable, "-E", "-B", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, bufsize=0)
        self.errors = b""  # the worker itself may write no file
        self.reader = threading.Thread(target=self.read_errors, daemon=True)
        self.reader.start()

    def read_errors(self):
        while more := self.process.stderr.read(1 << 16):
            self.errors += more

    def read(self, size, until):
        data = b""
        while len(data) < size:
            left = until - time.monotonic()
            assert left > 0 and select.select([self.process.stdout], [], [], left)[0], f"no answer within {ANSWER_SECONDS} s"
            more = self.process.stdout.read(size - len(data))
            if not more:
                self.reader.join()
                raise AssertionError(f"the worker died ({self.process.wait()}): {self.errors.decode(errors='replace')[:2000]}")
            data += more
        return data

    def ask(self, **request):
        text = json.dumps(request).encode()
        self.process.stdin.write(struct.pack("<I", len(text)) + text)
        until = time.monotonic() + ANSWER_SECONDS
        answer = json.loads(self.read(struct.unpack("<I", self.read(4, until))[0], until))
        self.read(answer["body"], until)
        if "error" in answer:
            assert len(answer["error"].split()) > 3 and "Traceback" not in answer["error"], answer
        return answer

    def peak_memory(self):
        status = pathlib.Path("/proc", str(self.process.pid), "status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(ANSWER_SECONDS) == 0


def use(worker, folder):
    """Everything that a run asks of an open tokenizer. Whether it opened."""
    if "error" in worker.ask(do="open", directory=str(folder)):
        return False
    chat = [{"role": "user", "content": "what is it"}, {"role": "assistant", "content": "a user é"}]
    for targets in ("assistant", "last"):
        worker.ask(do="records", targets=targets, records=[{"messages": chat}])
    worker.ask(do="records", targets="all", records=[{"text": "what is é?"}, {"prompt": "is ", "completion": "it"}])
    worker.ask(do="prompt", record={"messages": chat[:1]})
    worker.ask(do="decode", prompt=[2, 3], ids=[4, 5])
    worker.ask(do="decode", ids=[0, 70_000])
    return True


def main():
    choose = random.Random(SEED)
    worker, opened = Worker(), 0
    with tempfile.TemporaryDirectory(prefix="strait-tokenizer-") as holder:
        seeds, folder = pathlib.Path(holder, "seeds"), pathlib.Path(holder, "damaged")
        seeds.mkdir()
        write_seed_folder(seeds)
        for gone in ("tokenizer.json", "vocab.json", None):
            assert use(worker, seeds), "the undamaged tokenizer is refused"
            if gone:
                (seeds / gone).unlink()
        shutil.rmtree(seeds)
        seeds.mkdir()
        write_seed_folder(seeds)
        quiet = worker.peak_memory()
        for number in range(RUNS):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(seeds, folder)
            if choose.random() < 0.5:
                (folder / "tokenizer.json").unlink()
                if choose.random() < 0.5:
                    (folder / "vocab.json").unlink()
            if choose.random() < 0.4:
                (folder / "chat_template.jinja").unlink()
            files = sorted(folder.iterdir())
            for _ in range(choose.randint(1, 2)):
                damage(choose, choose.choice(files))
            try:
                opened += use(worker, folder)
            except BaseException:
                kept = tempfile.mkdtemp(prefix="strait-tokenizer-found-")
                shutil.copytree(folder, kept, dirs_exist_ok=True)
                print(f"input {number} of seed {SEED}, kept in {kept}", flush=True)
                raise
        peak = worker.peak_memory()
        worker.end()
        assert peak - quiet < MOST_MEMORY, f"{peak} bytes resident, {quiet} before"
    print(f"seed {SEED}: {RUNS} damaged folders, {opened} still opened; {quiet >> 20} MiB resident, {peak >> 20} at most")


if __name__ == "__main__":
    main()
