"""The tokenizer process of strait: records in, token ids and target spans out, over its own stdin and stdout.

Started by the launcher's side only. A message is a JSON text behind its length (4 bytes, little-endian);
an answer has, behind its JSON, `body` more bytes: token ids as int32. It reads Parquet files, too. What is wrong with a file or a
record is answered as {"error": sentence}, and the process goes on. Templates come from strangers: they run in
jinja2's sandbox, with limits of time and size, and cannot reach files.
"""

import sys

# Python is started with -E, not with -I, which hides what pip install --user has put in place. So the folder of this
# script, which holds programs, is still the first place of imports.
if __name__ == "__main__" and not getattr(sys.flags, "safe_path", sys.flags.isolated):
    del sys.path[0]

import array
import bisect
import datetime
import difflib
import functools
import itertools
import json
import os
import pathlib
import queue
import re
import resource
import shlex
import signal
import struct
import threading

MAXIMUM_MEMORY = 8 << 30  # address space of this process, where the system grants that much
MAXIMUM_THREADS = 16  # of the package tokenizers; the C library reserves 64 MiB of address space for each
MAXIMUM_RENDERED = 32 << 20  # characters of a rendered record
RENDER_SECONDS = 5
MAXIMUM_OPERAND = 1 << 20  # of * and ** in templates
MAXIMUM_TOKEN = (1 << 24) - 1  # number of a token; the package makes lists that are as long as the largest


class Refusal(Exception):
    """Something about the user's files, as a sentence."""


def limit_threads():
    wanted = os.environ.get("RAYON_NUM_THREADS", "")
    threads = int(wanted) if wanted.isdecimal() and int(wanted) > 0 else len(os.sched_getaffinity(0))
    os.environ["RAYON_NUM_THREADS"] = str(min(threads, MAXIMUM_THREADS))
    os.environ["TOKENIZERS_PARALLELISM"] = "true"


def open_packages():
    limit_threads()
    try:
        import jinja2
        import jinja2.ext
        import jinja2.sandbox
        import tokenizers
    except ImportError as error:
        raise Refusal(
            f"{sys.executable} lacks the package {error.name}; run ./strait setup, or install tokenizers and "
            "jinja2 for that Python, or set STRAIT_PYTHON to one that has them") from None
    return jinja2, tokenizers


# --- templates


def make_environment(jinja2):
    class GenerationTag(jinja2.ext.Extension):
        """{% generation %} ... {% endgeneration %}: what the assistant says."""

        tags = {"generation"}

        def __init__(self, environment):
            super().__init__(environment)
            self.rendered = 0  # characters so far
            self.spans = []  # (start, text)

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            call = self.call_method("note_span", lineno=line)
            return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

        def note_span(self, caller):
            text = caller()
            self.spans.append((self.rendered, text))
            return text

    class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(["*", "**"])

        def call_binop(self, context, operator, left, right):
            numbers = [x for x in (left, right) if isinstance(x, (int, float))]
            if operator == "**" and any(abs(x) > 1000 for x in numbers):
                raise OverflowError("a power in the template is too large")
            if operator == "*" and len(numbers) < 2:
                size = max((len(x) for x in (left, right) if hasattr(x, "__len__")), default=0)
                if size * max((abs(x) for x in numbers), default=0) > MAXIMUM_OPERAND:
                    raise OverflowError("a repetition in the template is too long")
            return super().call_binop(context, operator, left, right)

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, "jinja2.ext.loopcontrols"])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    # Without HTML escapes, which are for web pages.
    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    environment.tag = environment.extensions[GenerationTag.identifier]
    return environment


class OutOfTime(BaseException):  # not an Exception, which a library might swallow
    pass


def on_alarm(number, frame):
    raise OutOfTime


class ChatTemplate:
    def __init__(self, jinja2, text, variables, name):
        self.name = name
        self.variables = variables
        self.errors = (jinja2.exceptions.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError,
                       ValueError)
        self.environment = make_environment(jinja2)
        self.marks_spans = "generation" in text and "endgeneration" in text
        self.known_roles = set(re.findall("""['"](\\w+)['"]""", text))  # and other words
        self.template = self.guarded(lambda: self.environment.from_string(text))

    def guarded(self, work):
        signal.signal(signal.SIGALRM, on_alarm)
        signal.setitimer(signal.ITIMER_REAL, RENDER_SECONDS)
        try:
            return work()
        except OutOfTime:
            raise Refusal(f"the chat template of {self.name} did not end within {RENDER_SECONDS} s") from None
        except RecursionError:
            raise Refusal(f"the chat template of {self.name} calls itself without end") from None
        except MemoryError:
            raise Refusal(f"the chat template of {self.name} needs too much memory") from None
        except self.errors as error:
            raise Refusal(f"the chat template of {self.name} refused: {str(error)[:300]}") from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def render(self, messages, tools, prompt=False):
        """The text, and the spans (start, end) that the template marks as the assistant's."""

        def work():
            tag = self.environment.tag
            tag.rendered, tag.spans = 0, []
            pieces = []
            for piece in self.template.generate(
                    **self.variables, messages=messages, tools=tools, documents=None, add_generation_prompt=prompt):
                pieces.append(piece)
                tag.rendered += len(piece)
                if tag.rendered > MAXIMUM_RENDERED:
                    raise OverflowError(f"more than {MAXIMUM_RENDERED} characters for one record")
            return "".join(pieces), tag.spans

        text, marked = self.guarded(work)
        if any(text[start:start + len(part)] != part for start, part in marked):
            raise Refusal(
                f"the chat template of {self.name} uses the tag generation inside a macro or a set block, where the "
                "place of its text is not known; move it out of there")
        return text, [(start, start + len(part)) for start, part in marked if part]


# --- files of a tokenizer


def read_text(path):
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Refusal(f"{path}: {error}") from None


def read_object(path):
    try:
        value = json.loads(read_text(path))
    except RecursionError:
        raise Refusal(f"{path}: it is nested too deeply") from None
    except ValueError as error:
        raise Refusal(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise Refusal(f"{path} is not a JSON object, which it has to be; take the file from the model again")
    return value


def content_of(token):
    return token.get("content") if isinstance(token, dict) else token


GPT2_CLASSES = {None, "GPT2Tokenizer", "GPT2TokenizerFast"}
QWEN2_CLASSES = {"Qwen2Tokenizer", "Qwen2TokenizerFast"}
QWEN2_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+")


def from_vocabulary(tokenizers, folder, config):
    """Byte-level BPE of vocab.json and merges.txt."""
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

    kind = config.get("tokenizer_class")
    if kind not in GPT2_CLASSES | QWEN2_CLASSES:
        raise Refusal(
            f"{folder} has vocab.json and merges.txt of the class {kind}, which needs a tokenizer.json; write one with "
            "transformers: python3 -c 'import sys; from transformers import AutoTokenizer as T; "
            f"T.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])' {shlex.quote(str(folder))}")
    made = tokenizers.Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    made.decoder = decoders.ByteLevel()
    if kind in QWEN2_CLASSES:
        made.normalizer = normalizers.NFC()
        made.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(config.get("add_prefix_space")))
    add_listed_tokens(folder, config, made, "vocab.json")
    return made


def add_token(made, entry):
    from tokenizers import AddedToken

    flags = {k: entry[k] for k in ("lstrip", "rstrip", "single_word", "normalized") if k in entry}
    token = AddedToken(entry["content"], special=entry.get("special", False), **flags)
    (made.add_special_tokens if token.special else made.add_tokens)([token])


def add_listed_tokens(folder, config, made, vocabulary):
    for number, entry in added_tokens(folder, config, made):
        add_token(made, entry)
        got = made.token_to_id(entry["content"])
        if number is not None and got != number:
            raise Refusal(f"{folder}: its added token {entry['content']!r} is number {number}, but {vocabulary} and the added "
                          f"tokens before it make it number {got}")


def protobuf_fields(data):
    """The fields of a message, as (number, value): an int, or the bytes of a text, a message or a fixed number."""
    view, at = memoryview(data), 0

    def varint():
        nonlocal at
        value = shift = 0
        while shift < 64:
            byte = view[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value
        raise IndexError

    while at < len(view):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) if kind != 2 else varint()
        if size is None or size > len(view) - at:
            raise IndexError
        at += size
        yield number, bytes(view[at - size:at])


# Kinds of pieces of a tokenizer.model.
LONGEST_PIECE = 1000  # characters; SentencePiece itself makes none above 16
NORMAL, UNKNOWN, CONTROL_PIECE, USER_DEFINED = 1, 2, 3, 4


def sentence_pieces(file):
    """(text, score, kind) of each piece, the settings of the training and those of the normaliser, by number."""
    pieces, training, normaliser = [], {}, {}
    for number, value in protobuf_fields(file.read_bytes()):
        if number == 1:
            piece = dict(protobuf_fields(value))
            score = struct.unpack("<f", piece.get(2, bytes(4)))[0]
            pieces.append((piece.get(1, b"").decode("utf-8", "replace"), score, piece.get(3, NORMAL)))
        elif number in (2, 3):
            (training if number == 2 else normaliser).update(protobuf_fields(value))
    return pieces, training, normaliser


def from_sentencepiece(tokenizers, folder, config):
    """The BPE of a tokenizer.model, as of Llama 2 and Mistral: merges in the order of their scores."""
    from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

    file = folder / "tokenizer.model"
    pieces, training, normaliser = sentence_pieces(file)
    # Numbers of trainer_spec.model_type, and of the normaliser's charsmap, dummy prefix, extra spaces, escaped spaces.
    if training.get(3, 1) != 2 or normaliser.get(2) or normaliser.get(4, 1) or not normaliser.get(5, 1):
        raise Refusal(
            f"{file} is not a BPE that leaves texts as they are, which is the only kind that this build reads without a "
            "tokenizer.json; write one with transformers and sentencepiece (pip install both): python3 -c 'import sys; "
            "from transformers import AutoTokenizer as T; T.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])' "
            f"{shlex.quote(str(folder))}")
    vocabulary = {text: number for number, (text, _, _) in enumerate(pieces)}
    rank = {text: (-score, number) for number, (text, score, kind) in enumerate(pieces) if kind == NORMAL}
    if any(len(text) > LONGEST_PIECE for text in rank):
        raise ValueError("a piece is too long")
    splits = ((text, text[:at], text[at:]) for text in rank for at in range(1, len(text)))
    merges = sorted((rank[text], left, right) for text, left, right in splits if left in rank and right in rank)
    whole = sorted((text for text, _, kind in pieces if kind == USER_DEFINED), key=len, reverse=True)
    made = tokenizers.Tokenizer(models.BPE(
        vocabulary, [(left, right) for _, left, right in merges], fuse_unk=True, byte_fallback=bool(training.get(35)),
        unk_token=next((text for text, _, kind in pieces if kind == UNKNOWN), None), ignore_merges=bool(whole)))
    prefix = normaliser.get(3, 1) and config.get("add_prefix_space") is not False
    scheme = ("always" if config.get("legacy") else "first") if prefix else "never"
    parts = [pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)]
    if whole:
        parts.append(pre_tokenizers.Split(Regex("|".join(map(re.escape, whole))), behavior="isolated"))
    made.pre_tokenizer = pre_tokenizers.Sequence(parts)
    end = [decoders.Strip(" ", 1, 0)] if prefix else []
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *end])
    made.add_special_tokens([AddedToken(text, normalized=False) for text, _, kind in pieces if kind == CONTROL_PIECE])
    add_listed_tokens(folder, config, made, file.name)
    config.setdefault("tokenizer_class", "LlamaTokenizer")
    if config.get("add_bos_token") is None:  # its class does, where no file says it
        config["add_bos_token"] = True
    return made


def added_tokens(folder, config, made):
    """Tokens beside the vocabulary's file, as (number, entry); number None: in the vocabulary, if anywhere."""
    if "added_tokens_decoder" in config:
        return sorted((int(number), entry) for number, entry in config["added_tokens_decoder"].items())
    named = named_tokens(folder, config)
    add_class_tokens(named, config, made)
    special = list(dict.fromkeys([*named.values(), *extra_tokens(folder, config)]))
    file = folder / "added_tokens.json"
    added = sorted((number, text) for text, number in (read_object(file) if file.is_file() else {}).items())
    listed = {text for _, text in added}
    return ([(number, {"content": text, "special": text in special}) for number, text in added] +
            [(None, {"content": text, "special": True}) for text in special if text not in listed])


NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def add_absent_tokens(folder, config, made):
    """Tokens that other files name and tokenizer.json lacks get the numbers after its own, as in transformers."""
    named = named_tokens(folder, config)
    entries = [entry for number, entry in added_tokens(folder, config, made) if number is not None]
    entries += [{"content": text, "special": True}
                for text in [*(named[name] for name in NAMES if name in named), *extra_tokens(folder, config)]]
    for entry in entries:
        if made.token_to_id(entry["content"]) is None:
            add_token(made, entry)


def load_tokenizer(tokenizers, folder, config):
    if (folder / "tokenizer.json").is_file():
        try:
            made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the package raises plain Exception for what does not parse
            raise Refusal(f"{folder / 'tokenizer.json'} is not a tokenizer: {str(error)[:300]}") from None
        add_absent_tokens(folder, config, made)
        config.pop("add_bos_token", None)  # as in transformers, its post-processor says so
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        made = from_vocabulary(tokenizers, folder, config)
    else:
        try:
            made = from_sentencepiece(tokenizers, folder, config)
        except (OSError, MemoryError, Refusal):
            raise
        except Exception:
            raise Refusal(f"{folder / 'tokenizer.model'} is damaged, or not a file of SentencePiece; take it from the model "
                          "again") from None
    text, number = max(made.get_vocab().items(), key=lambda item: item[1], default=("", 0))
    if number > MAXIMUM_TOKEN:
        raise Refusal(f"{folder}: its token {text[:50]!r} is number {number}, and strait knows numbers up to "
                      f"{MAXIMUM_TOKEN}; the files may be damaged, take them from the model again")
    made.no_truncation()
    made.no_padding()
    if getattr(made.model, "dropout", None):
        made.model.dropout = None
    return made


def without_prefix(part):
    """A part of a tokenizer.json, where it puts no space before a text: None where it does nothing else."""
    if isinstance(part, list):
        return [kept for kept in map(without_prefix, part) if kept is not None]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "Prepend":
        return None
    never = {"add_prefix_space": False, "prepend_scheme": "never"}
    return {name: never.get(name, without_prefix(value)) for name, value in part.items()}


def continuing_tokenizer(tokenizers, made):
    """The tokenizer of a text that goes on: itself, or one that does not put a space before it."""
    content = json.loads(made.to_str())
    changed = {name: without_prefix(content[name]) for name in ("normalizer", "pre_tokenizer")}
    if all(content[name] == part for name, part in changed.items()):
        return made
    return tokenizers.Tokenizer.from_str(json.dumps({**content, **changed}))


# What classes of transformers call bos_token and eos_token where no file does: GPT-2's own folder names neither.
CLASS_TOKENS = {"GPT2": ("<|endoftext|>", "<|endoftext|>"), "GPTNeoX": ("<|endoftext|>", "<|endoftext|>"),
                "CodeGen": ("<|endoftext|>", "<|endoftext|>"), "Qwen2": (None, "<|endoftext|>"),
                "Llama": ("<s>", "</s>"), "Gemma": ("<bos>", "<eos>")}


def token_sources(folder, config):
    """As transformers reads them, later ones first: the older file counts where the configuration lists no tokens."""
    older = folder / "special_tokens_map.json"
    counts = older.is_file() and "added_tokens_decoder" not in config
    return [config] + ([read_object(older)] if counts else [])


def named_tokens(folder, config):
    """bos_token, eos_token, ...: their texts."""
    found = {}
    for source in token_sources(folder, config):
        for name, token in source.items():
            text = content_of(token) if name.endswith("_token") else None
            if isinstance(text, str):
                found[name] = text
    return found


def extra_tokens(folder, config):
    """Special tokens without a name of their own."""
    listed = [token for source in token_sources(folder, config)
              for name in ("additional_special_tokens", "extra_special_tokens")
              if isinstance(source.get(name), list) for token in source[name]]
    return [text for text in map(content_of, listed) if isinstance(text, str)]


def add_class_tokens(named, config, tokenizer):
    kind = (config.get("tokenizer_class") or "GPT2Tokenizer").removesuffix("Fast").removesuffix("Tokenizer")
    for name, text in zip(("bos_token", "eos_token"), CLASS_TOKENS.get(kind, (None, None))):
        # null means that there is none.
        if name not in config and text is not None and tokenizer.token_to_id(text) is not None:
            named.setdefault(name, text)


def template_texts(folder, config):
    """Texts by name; "default" is the one for messages."""
    found = {}
    listed = config.get("chat_template")
    if isinstance(listed, str):
        found["default"] = listed
    elif isinstance(listed, list):
        found.update({entry["name"]: entry["template"] for entry in listed})
    for file in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[file.stem] = read_text(file)
    if (folder / "chat_template.jinja").is_file():
        found["default"] = read_text(folder / "chat_template.jinja")
    return found


# Templates by the names that data.chat_template has, for bases without one: the text of a message, of the header
# before an answer, and the control tokens that the vocabulary must have.
TURNS = "{% for message in messages %}{% set role = message['role'] %}{% set content = message['content'] %}"
ANSWER = "{% endfor %}{% if add_generation_prompt %}"
NAMED_TEMPLATES = {
    "chatml": (
        TURNS + "{{ '<|im_start|>' + role + '\n' + content + '<|im_end|>\n' }}" + ANSWER +
        "{{ '<|im_start|>assistant\n' }}{% endif %}", ("<|im_start|>", "<|im_end|>")),
    "llama3": (
        "{{ bos_token }}" + TURNS + "{{ '<|start_header_id|>' + role + '<|end_header_id|>\n\n' + content + "
        "'<|eot_id|>' }}" + ANSWER + "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
    "gemma": (
        "{{ bos_token }}" + TURNS + "{{ '<start_of_turn>' + ('model' if role == 'assistant' else role) + '\n' + "
        "content + '<end_of_turn>\n' }}" + ANSWER + "{{ '<start_of_turn>model\n' }}{% endif %}",
        ("<start_of_turn>", "<end_of_turn>")),
    "mistral": (
        "{{ bos_token }}" + TURNS + "{% if role == 'assistant' %}{{ ' ' + content + eos_token }}"
        "{% elif role == 'system' %}{{ '[INST] ' + content + '\n\n' }}"
        "{% else %}{{ ('' if loop.previtem and loop.previtem['role'] == 'system' else '[INST] ') + content + "
        "' [/INST]' }}{% endif %}{% endfor %}", ()),
    "zephyr": (
        TURNS + "{{ '<|' + role + '|>\n' + content + eos_token + '\n' }}" + ANSWER +
        "{{ '<|assistant|>\n' }}{% endif %}", ()),
    "alpaca": (
        TURNS + "{% if role == 'assistant' %}{{ '### Response:\n' + content + eos_token + '\n\n' }}"
        "{% elif role == 'system' %}{{ content + '\n\n' }}"
        "{% else %}{{ '### Instruction:\n' + content + '\n\n' }}{% endif %}" + ANSWER +
        "{{ '### Response:\n' }}{% endif %}", ()),
}


class TokenizerFolder:
    def __init__(self, jinja2, tokenizers, folder, template=""):
        self.folder = folder
        file = folder / "tokenizer_config.json"
        config = read_object(file) if file.is_file() else {}
        self.tokenizer = load_tokenizer(tokenizers, folder, config)
        named = named_tokens(folder, config)
        add_class_tokens(named, config, self.tokenizer)
        ids = {name: self.tokenizer.token_to_id(text) for name, text in named.items()}
        self.eos = ids.get("eos_token")
        self.tokenizers = tokenizers
        self.takes_space = {
            number for number, token in self.tokenizer.get_added_tokens_decoder().items() if token.rstrip}
        self.set_edges(config, ids.get("bos_token"))
        self.template = self.named_template(template) if template else ""
        texts = {"default": self.template} if template else template_texts(folder, config)
        # As in transformers: names of absent tokens are undefined.
        self.templates = {name: ChatTemplate(jinja2, text, named, str(folder)) for name, text in texts.items()}

    def named_template(self, name):
        if name not in NAMED_TEMPLATES:
            raise Refusal(f'there is no chat template named "{name}"; there are {", ".join(sorted(NAMED_TEMPLATES))}')
        text, tokens = NAMED_TEMPLATES[name]
        missing = [token for token in tokens if self.tokenizer.token_to_id(token) is None]
        if missing or ("eos_token" in text and self.eos is None):
            others = sorted(other for other, (_, needed) in NAMED_TEMPLATES.items()
                            if all(self.tokenizer.token_to_id(token) is not None for token in needed) and other != name)
            raise Refusal(f"{self.folder}: its vocabulary has no {' and no '.join(missing) or 'eos_token'}, which the chat "
                          f'template "{name}" ends turns with; take another one'
                          + (f", such as {', '.join(others)}" if missing and self.eos is not None and others else ""))
        return text

    def set_edges(self, config, bos):
        """What the post-processor, or the configuration, puts around a text."""
        bare, whole = self.encoded_sample()
        at = next((i for i in range(len(whole) + 1) if whole[i:i + len(bare)] == bare), 0)
        self.prefix, self.suffix = whole[:at], whole[at + len(bare):]
        if config.get("add_bos_token") is True and bos is not None and self.prefix[:1] != [bos]:
            self.prefix = [bos, *self.prefix]
        if config.get("add_bos_token") is False and bos is not None and self.prefix[:1] == [bos]:
            self.prefix = self.prefix[1:]
        self.ends = list(self.suffix)
        if self.eos is not None and self.suffix[-1:] != [self.eos]:
            self.ends.append(self.eos)  # a record that is learnt has an end

    def encoded_sample(self):
        """A text that has tokens, without and with what is put around it: not every vocabulary has letters. A text of
        tokens that are also put around texts would not show where it stands among them."""
        around = set(self.tokenizer.encode("").ids)
        for text in itertools.chain("a", self.tokenizer.get_vocab()):
            bare = self.tokenizer.encode(text, add_special_tokens=False).ids
            if bare and around.isdisjoint(bare):
                return bare, self.tokenizer.encode(text).ids
        raise Refusal(f"{self.folder}: its tokenizer makes no token of any text but those that it puts around each")

    def turn_end(self):
        """The control token behind what the assistant says in the chat template, where there is one. A model that was
        tuned on chats need not know another end: that of its configuration may be the base model's."""
        answer = "what is said"
        chat = [{"role": "user", "content": "what is asked"}, {"role": "assistant", "content": answer}]
        try:
            text = self.templates["default"].render(chat, None)[0] if "default" in self.templates else ""
        except Refusal:
            return None
        if answer not in text:
            return None
        added = self.tokenizer.get_added_tokens_decoder()
        behind = self.plain([text[text.rindex(answer) + len(answer):]])[0]
        return next((token for token in behind if token in added and added[token].special), None)

    def end_tokens(self):
        ends = {self.eos, self.turn_end()}
        for name in ("generation_config.json", "config.json"):
            file = self.folder / name
            listed = read_object(file).get("eos_token_id") if file.is_file() else None
            ends.update(listed if isinstance(listed, list) else [listed])
        return sorted(x for x in ends if isinstance(x, int))

    def plain(self, texts):
        return [e.ids for e in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    @functools.cached_property
    def continuing(self):
        return continuing_tokenizer(self.tokenizers, self.tokenizer)

    def continued(self, texts):
        """Tokens of texts that go on behind others."""
        if not texts or self.continuing is self.tokenizer:
            return self.plain(texts)
        encodings = self.continuing.encode_batch(texts, add_special_tokens=False)
        return [self.with_prefixes_inside(text, encoding) for text, encoding in zip(texts, encodings)]

    def with_prefixes_inside(self, text, encoding):
        """From the first added token on, behind which a tokenizer may put a space as at the beginning of a text."""
        added = self.tokenizer.get_added_tokens_decoder()
        for i, (token, (start, end)) in enumerate(zip(encoding.ids, encoding.offsets)):
            # Not what only stands for characters that the vocabulary lacks.
            if token in added and text[start:end].strip() == added[token].content.strip():
                return encoding.ids[:i] + self.plain([text[start:]])[0]
        return encoding.ids

    def template_for(self, tools):
        if tools and "tool_use" in self.templates:
            return self.templates["tool_use"]
        if "default" in self.templates:
            return self.templates["default"]
        raise Refusal(
            f"{self.folder} has no chat template, so messages cannot become text; put one there as chat_template.jinja, "
            "as the chat version of the model has it, or give records as prompt and completion")


# --- records


def chat_of(record):
    """messages and tools; contents that are lists of texts become texts, which every template expects. As in
    transformers, keys that are null are absent, and thoughts have the names that templates read."""
    messages = []
    listed = record["messages"]
    if not isinstance(listed, list) or not all(isinstance(message, dict) for message in listed):
        raise Refusal('"messages" is not a list of {"role", "content"}')
    for message in listed:
        content = message.get("content")
        if isinstance(content, list):
            if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
                raise Refusal('a part of "content" is no {"type": "text", "text": ...}')
            message = dict(message, content="".join(part["text"] for part in content))
        message = {key: value for key, value in message.items() if value is not None and key not in ("train", "weight")}
        thoughts = next((message[key] for key in ("reasoning_content", "thinking", "reasoning") if key in message), None)
        if thoughts is not None:
            message = {"thinking": thoughts, **message, "reasoning_content": thoughts}
        messages.append(message)
    tools = record.get("tools")
    if isinstance(tools, str):
        try:
            tools = json.loads(tools) if tools.strip() else None
        except (ValueError, RecursionError):
            raise Refusal('"tools" is a text that is not JSON') from None
    return messages, tools or None


def learnt_turns(record):
    """The assistant's messages that are learnt. C++ has checked "train" and "weight", of which templates know nothing."""
    return [i for i, message in enumerate(record["messages"])
            if message.get("role") == "assistant" and message.get("train") is not False
            and (message.get("weight") != 0 or message["weight"] is False)]


def opening_length(template, tools, message, until):
    """How much of `until`, the text of a chat that is this message of the assistant's alone, stands before what it
    says: its header, and what the template begins chats with. An empty chat does not show it: a default system prompt
    need not be in it, and templates look at its first message."""

    def alone(keys, content, prompt=False):
        return template.render([{**keys, "role": message["role"], "content": content}], tools, prompt)[0]

    contents = ("x", "y")
    # The text begins where the renders of two contents differ. First without the message's other keys: thoughts and
    # calls of tools are what the assistant says, too, and no part of the header.
    for keys in ({}, message):
        try:
            texts = [alone(keys, content) for content in contents]
            prompted = alone(keys, contents[0], prompt=True)
        except Refusal:
            continue
        before = os.path.commonprefix(texts)
        if not all(text.startswith(content, len(before)) for text, content in zip(texts, contents)):
            continue  # the content is left out, or changed
        # As in later turns from the generation prompt on, where there is one: thoughts may follow it.
        asks = prompted[len(texts[0]):] if prompted.startswith(texts[0]) else ""
        if asks and asks in before:
            before = before[:before.rindex(asks) + len(asks)]
        if until.startswith(before):
            return len(before)
    raise Refusal(
        f"message 1: what the chat template of {template.name} renders before the assistant's text depends on that "
        "text, or it changes the text, so its place is not known; mark the assistant's text in the template with "
        "{% generation %} and {% endgeneration %}, or begin the chat with a user's message")


USUAL_ROLES = ("system", "developer", "user", "assistant", "tool")


def check_roles(template, messages, tools):
    """Roles that are a template's own are passed through to it: it names them, or renders any. Others would be left out
    without a word."""
    for i, message in enumerate(messages):
        role = message.get("role")
        if role in USUAL_ROLES or role in template.known_roles:
            continue
        if meant := difflib.get_close_matches(str(role), USUAL_ROLES, 1, 0.8):
            raise Refusal(f'message {i + 1}: the chat template of {template.name} does not name the role "{role}"; '
                          f'did you mean "{meant[0]}"?')
        texts = [rendered_or_none(template, [*messages[:i], dict(message, content=content), *messages[i + 1:]], tools)
                 for content in ("x", "y")]
        if None in texts or texts[0] == texts[1]:
            raise Refusal(f'message {i + 1}: the chat template of {template.name} does not know the role "{role}", and '
                          "leaves the message out or refuses it; give it another role, or use a template that knows it")
        template.known_roles.add(role)


def rendered_or_none(template, messages, tools, prompt=False):
    try:
        return template.render(messages, tools, prompt)[0]
    except Refusal:
        return None


def shared_header(template, messages, tools, prompted, until):
    """How far `until`, the text of a chat that ends in an answer, goes as it would with any answer and as the generation
    prompt does: of some templates that one goes on, to thoughts that turns in a chat are shown without."""
    answers = [rendered_or_none(template, [*messages[:-1], {"role": messages[-1]["role"], "content": content}], tools)
               for content in ("x", "y")]
    return 0 if prompted is None or None in answers else len(os.path.commonprefix([prompted, until, *answers]))


def turn_span(template, messages, tools, text, i):
    """Where message i, one of the assistant's, is: by what it adds to the text of those before it."""
    until = text if i + 1 == len(messages) else template.render(messages[:i + 1], tools)[0]
    eos = template.variables.get("eos_token")
    if eos and not text.startswith(until):
        until = until.removesuffix(eos)  # some templates end a chat with it, no turn
    if not text.startswith(until):
        raise Refusal(
            f"message {i + 1}: the chat template of {template.name} renders it differently when more messages "
            'follow, so its place is not known; use data.targets = "last", or mark the assistant\'s text in the '
            "template with {% generation %} and {% endgeneration %}")
    if i == 0:
        return opening_length(template, tools, messages[0], until), len(until)
    prompted, before = (rendered_or_none(template, messages[:i], tools, prompt) for prompt in (True, False))
    if prompted is not None and until.startswith(prompted):
        return len(prompted), len(until)
    if before is not None and until.startswith(before):
        return max(len(before), shared_header(template, messages[:i + 1], tools, prompted, until)), len(until)
    # Not the whole text: what the user and the system say would be learnt as the answer.
    raise Refusal(
        f"message {i + 1}: what the chat template of {template.name} renders for the messages before it is no "
        "beginning of the whole, or it refuses them, so its place is not known; mark the assistant's text in the "
        "template with {% generation %} and {% endgeneration %}")


def last_turn_spans(template, messages, tools, text, marked):
    """Those of the marked spans that are of the assistant's last message, which may have several: thoughts and calls."""
    turns = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    if len(turns) < 2:
        return marked
    try:
        before, earlier = template.render(messages[:turns[-1]], tools)
    except Refusal:
        before, earlier = "", None
    same = earlier is not None and [before[a:b] for a, b in earlier] == [text[a:b] for a, b in marked[:len(earlier)]]
    if same:
        return marked[len(earlier):]
    if len(marked) == len(turns):
        return marked[-1:]
    raise Refusal(
        f"message {turns[-1] + 1}: the chat template of {template.name} marks other text of the messages before it when "
        'it follows, so its place is not known; use data.targets = "assistant"')


def spans_of_turns(template, turns, learnt, marked):
    """Of the marked spans, those of some of the assistant's messages."""
    if len(marked) != len(turns):
        raise Refusal(
            f"the chat template of {template.name} marks {len(marked)} texts of {len(turns)} messages of the assistant's, "
            'so the place of the one that has "train": false, or a "weight" of 0, is not known; leave the message out')
    return [span for turn, span in zip(turns, marked) if turn in learnt]


def chat_spans(template, messages, tools, targets, learnt):
    """The rendered text, and the spans of it that are to be learnt; `learnt`: by which of the assistant's messages."""
    text, marked = template.render(messages, tools)
    if targets == "all":
        return text, [(0, len(text))]
    turns = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    chosen = learnt[-1:] if targets == "last" else learnt
    if not template.marks_spans:
        spans = [turn_span(template, messages, tools, text, i) for i in chosen]
    elif learnt != turns:
        spans = spans_of_turns(template, turns, chosen, marked)
    else:
        spans = last_turn_spans(template, messages, tools, text, marked) if targets == "last" else marked
    if not spans:
        raise Refusal(f"the chat template of {template.name} renders nothing of the assistant's: nothing to learn")
    return text, spans


def token_spans(encoding, spans, takes_space):
    """Spans of characters as spans of tokens: those that begin inside. `takes_space`: tokens with the space behind them."""
    starts = [start for start, _ in encoding.offsets]
    # Where offsets leave spaces out, that of a space alone is behind it, and behind the start of the next token.
    least = list(itertools.accumulate(reversed(starts), min))[::-1]
    found = []
    for start, end in spans:
        first = encoding.char_to_token(start)
        if first is None:
            first = bisect.bisect_left(least, start)
        elif starts[first] < start and encoding.ids[first] in takes_space:
            first += 1  # a token of the header, and spaces of the answer that it has taken
        last = bisect.bisect_left(least, end)
        if first < last:
            found.append([first, last])
    return found


# --- tables

BATCH_BYTES = 4 << 20  # of rows that are sent together
READ_BYTES = 1 << 20  # of a column at a time, in place of all of a row group
# Columns that records are made of. Others, such as pictures, are not read.
RECORD_COLUMNS = ("text", "prompt", "completion", "messages", "conversations", "instruction", "input", "output",
                  "history", "system", "tools", "chosen", "rejected", "label")


class Table:
    """The rows of a Parquet file as lines of JSONL."""

    def __init__(self, path):
        self.path, self.row = path, 0
        try:
            import pyarrow.parquet
        except ImportError:
            raise Refusal(f"{path} is read with the package pyarrow, which {sys.executable} lacks; install it with "
                          f"{shlex.quote(sys.executable)} -m pip install pyarrow, or set STRAIT_PYTHON to a Python that "
                          "has it") from None
        self.file = self.guarded(lambda: pyarrow.parquet.ParquetFile(path, buffer_size=READ_BYTES, pre_buffer=False))
        metadata, names = self.file.metadata, self.file.schema_arrow.names
        columns = [name for name in names if name in RECORD_COLUMNS]
        if not columns:
            raise Refusal(f"{path} has the columns {', '.join(names)}, and none that a record is made of: text; prompt and "
                          "completion; messages; conversations; or instruction and output")
        self.rows = metadata.num_rows
        size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        count = max(1, min(4096, BATCH_BYTES * self.rows // max(size, 1)))
        self.batches = self.guarded(lambda: self.file.iter_batches(count, columns=columns, use_threads=False))

    def guarded(self, work):
        try:
            return work()
        except (Refusal, MemoryError):
            raise
        except Exception as error:
            what = " ".join(str(error).split())[:200]
            raise Refusal(f"{self.path} cannot be read as a Parquet file, so it may be damaged or cut short; get it again "
                          f"({what})") from None

    def next_rows(self):
        rows, size = [], 0
        while size < BATCH_BYTES and (batch := self.guarded(lambda: next(self.batches, None))) is not None:
            for row in batch.to_pylist():
                self.row += 1
                rows.append(json.dumps(self.plain(row), ensure_ascii=False))
                size += len(rows[-1])
        return rows

    def plain(self, value):
        """A value as JSONL would have it. A struct of a column has all keys of all rows: null stands for a key that is
        not there, but under "content", where templates know it."""
        if isinstance(value, dict):
            return {key: self.plain(one) for key, one in value.items() if one is not None or key == "content"}
        if isinstance(value, (list, tuple)):
            return [self.plain(one) for one in value]
        if isinstance(value, bytes):
            try:
                return value.decode()
            except ValueError:
                raise Refusal(f"{self.path}:{self.row}: a text is not UTF-8") from None
        return value if value is None or isinstance(value, (str, int, float)) else str(value)


class Worker:
    def __init__(self):
        self.folder = self.table = None

    def open(self, request):
        self.folder = TokenizerFolder(*open_packages(), pathlib.Path(request["directory"]), request.get("template", ""))
        return {"template": self.folder.template, "ends": self.folder.end_tokens(), "ends_records": bool(self.folder.ends),
                "vocabulary": self.folder.tokenizer.get_vocab_size(), "chat": "default" in self.folder.templates}, []

    def records(self, request):
        """ids and target spans of each record, in order."""
        targets, records = request["targets"], request["records"]
        results = [None] * len(records)
        # A chat comes as its line, which may have the other keys, too.
        kinds = {"messages": [], "text": [], "prompt": []}
        for i, record in enumerate(records):
            kinds[next(k for k in kinds if k in record)].append(i)
        self.add_texts(records, kinds["text"], results)
        self.add_pairs(records, kinds["prompt"], results, targets)
        self.add_chats(records, kinds["messages"], results, targets)
        ids = array.array("i")
        for tokens, _ in results:
            ids.extend(tokens)
        return {"counts": [len(tokens) for tokens, _ in results], "targets": [spans for _, spans in results]}, ids

    def add_texts(self, records, chosen, results):
        folder = self.folder
        begin = [i for i in chosen if records[i].get("first", True)]
        go_on = [i for i in chosen if not records[i].get("first", True)]
        begun = [folder.prefix + ids for ids in folder.plain([records[i]["text"] for i in begin])]
        for i, ids in zip(begin + go_on, begun + folder.continued([records[i]["text"] for i in go_on])):
            if records[i].get("last", True):
                ids = ids + folder.ends
            results[i] = (ids, [[0, len(ids)]])

    def add_pairs(self, records, chosen, results, targets):
        folder = self.folder
        prompts = folder.plain([records[i]["prompt"] for i in chosen])
        wholes = folder.plain([records[i]["prompt"] + records[i]["completion"] for i in chosen])
        for i, prompt, whole in zip(chosen, prompts, wholes):
            # A token over both would not be in a prompt alone: then both are encoded apart.
            if whole[:len(prompt)] != prompt:
                whole = prompt + folder.continued([records[i]["completion"]])[0]
            ids = folder.prefix + whole + folder.ends
            first = 0 if targets == "all" else len(folder.prefix) + len(prompt)
            results[i] = (ids, [[first, len(ids)]])

    def add_chats(self, records, chosen, results, targets):
        texts, spans = [], []
        for i in chosen:
            try:
                messages, tools = chat_of(records[i])
                template = self.folder.template_for(tools)
                check_roles(template, messages, tools)
                text, where = chat_spans(template, messages, tools, targets, learnt_turns(records[i]))
            except Refusal as refusal:
                refusal.record = i
                raise
            texts.append(text)
            spans.append(where)
        encodings = self.folder.tokenizer.encode_batch(texts, add_special_tokens=False)
        for i, encoding, where in zip(chosen, encodings, spans):
            results[i] = (encoding.ids, token_spans(encoding, where, self.folder.takes_space))

    def prompt(self, request):
        if "record" in request:
            messages, tools = chat_of(request["record"])
            template = self.folder.template_for(tools)
            check_roles(template, messages, tools)
            text, _ = template.render(messages, tools, prompt=True)
            ids = self.folder.plain([text])[0]
        else:
            ids = self.folder.prefix + self.folder.plain([request["text"]])[0]
        return {"counts": [len(ids)], "targets": [[]]}, ids

    def decode(self, request):
        """The text of `ids` behind `prompt`; without `prompt` with control tokens."""
        tokenizer, ids = self.folder.tokenizer, request["ids"]
        if "prompt" not in request:
            return {"text": tokenizer.decode(ids, skip_special_tokens=False)}, []
        head, whole = tokenizer.decode(request["prompt"]), tokenizer.decode(request["prompt"] + ids)
        return {"text": whole[len(head):] if whole.startswith(head) else tokenizer.decode(ids)}, []

    def open_table(self, request):
        self.table = Table(request["file"])
        return {}, []

    def rows(self, request):
        rows = self.table.next_rows()
        return {"rows": rows, "share": self.table.row / max(self.table.rows, 1)}, []

    def answer(self, request):
        return {"open": self.open, "records": self.records, "prompt": self.prompt, "decode": self.decode,
                "table": self.open_table, "rows": self.rows}[request["do"]](request)


def read_requests(stream, requests):
    """On a thread: the launcher sends the next batch while this one is worked on, and must not wait for us to read it."""
    while True:
        size = stream.read(4)
        text = stream.read(struct.unpack("<I", size)[0]) if len(size) == 4 else b""
        requests.put(text)
        if not text:
            return  # the launcher has ended, or needs us no more


def limit_memory():
    """The limit that is in force then."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]  # which only root may raise
    memory = MAXIMUM_MEMORY if hard == resource.RLIM_INFINITY else min(MAXIMUM_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    return memory


def main():
    memory = limit_memory()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    sys.setrecursionlimit(2000)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    worker = None
    requests = queue.SimpleQueue()  # the launcher sends at most two batches ahead
    threading.Thread(target=read_requests, args=(source, requests), daemon=True).start()
    while text := requests.get():
        request = json.loads(text)
        body = b""
        try:
            worker = worker or Worker()
            answer, ids = worker.answer(request)
            body = array.array("i", ids).tobytes()
        except Refusal as refusal:
            answer = {"error": str(refusal)}
            if hasattr(refusal, "record"):
                answer["record"] = refusal.record
        except MemoryError:
            answer = {"error": f"the tokenizer process needs more than {memory / 2**30:.3g} GiB"}
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # of packages: any kind, and a panic of Rust is no Exception
            folder = request.get("directory") or worker.folder.folder
            what = " ".join(str(error).split())[:300]
            answer = {"error": f"the tokenizer of {folder} cannot be used, its files may be damaged: "
                               f"{what or 'no cause given'} ({type(error).__name__})"}
        answer["body"] = len(body)
        text = json.dumps(answer).encode()
        sink.write(struct.pack("<I", len(text)) + text + body)
        sink.flush()


if __name__ == "__main__":
    main()
