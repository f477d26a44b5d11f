"""The tokenizer process against the transformers package: ids and assistant masks over hard texts, for tokenizers made
here and templates of several families; and templates that loop, recurse or reach for files."""

import json
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

try:
    import tokenizers
    import transformers
    from transformers.utils import sentencepiece_model_pb2_new as sentencepiece_model_pb2
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as error:
    print(f"skipped: {error}; ./strait test installs it")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "launcher/tokenizer/strait-tokenizer.py"
CONTROL = ["<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]",
           "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
CORPUS = ["the quick brown fox jumps over the lazy dog, 1234567 times", "naïve café über straße", "def f(x):\n    return x\n\n",
          "user assistant system hello world what is the answer of it"] * 20

# One character of each kind from every plane, and what tokenizers trip over.
HARD = ["", " ", "a", "  two  spaces  ", "\n\n\n", "\t\r\n mixed \r", "trailing ", " leading", "é e\u0301 ﬁ Å", "日本語テキスト", "עברית عربى",
        "👩‍👩‍👧‍👦🏳️‍🌈", "\U00010348\U0001F600", "\U00020000\U0002A6D6\U00030000", "\U000E0041\U000F0000\U00100000", "\u200b\u200d\ufeff\u00a0",
        "<|im_end|> inside </s> text <s>", "[INST] not a turn [/INST]", "it's we'LL I'd", "1234567890 3.14159", "a" * 500,
        "\x00\x01\x7f", "".join(chr(i) for i in range(0x20, 0x250)), "mixed 日本 text ▁ with ▁▁ bars", "{{ not a template }} {% raw %}"]

# Written for this test, after what the families' templates render.
TEMPLATES = {
    "llama": "{{- bos_token }}{%- for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
             "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim }}<|eot_id|>{% endgeneration %}"
             "{% else %}{{ message['content'] | trim }}<|eot_id|>{% endif %}{%- endfor %}"
             "{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    "mistral": "{{ bos_token }}{% for message in messages %}{% if message.role == 'user' %}[INST] {{ message.content }} [/INST]"
               "{% elif message.role == 'assistant' %}{% generation %} {{ message.content }}{{ eos_token }}{% endgeneration %}"
               "{% elif message.role != 'system' %}{{ raise_exception('roles are user and assistant') }}{% endif %}{% endfor %}",
    "qwen2": "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}"
             "{% if message.role == 'assistant' %}{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}"
             "{% else %}{{ message.content + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
             "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "gemma": "{{ bos_token }}{% for message in messages %}{% if message.role == 'system' %}{% continue %}{% endif %}"
             "<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n"
             "{% if message.role == 'assistant' %}{% generation %}{{ message.content | trim }}<end_of_turn>{% endgeneration %}"
             "{% else %}{{ message.content | trim }}<end_of_turn>{% endif %}{{ '\n' }}{% endfor %}"
             "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    "phi3": "{% for message in messages %}\n    {% if message.role == 'assistant' %}\n<|assistant|>\n{% generation %}"
            "{{ message.content }}<|end|>{% endgeneration %}\n{% else %}<|{{ message.role }}|>\n{{ message.content }}<|end|>\n"
            "{% endif %}\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
}


def without_spans(template):
    return template.replace("{% generation %}", "{% if true %}").replace("{% endgeneration %}", "{% endif %}")


class WorkerProcess:
    def __init__(self, folder, script=SCRIPT, **options):
        self.process = subprocess.Popen(
            [sys.executable, "-E", "-B", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.opened = self.ask(do="open", directory=str(folder))

    def ask(self, **request):
        text = json.dumps(request).encode()
        self.process.stdin.write(struct.pack("<I", len(text)) + text)
        self.process.stdin.flush()
        (size,) = struct.unpack("<I", self.process.stdout.read(4))
        answer = json.loads(self.process.stdout.read(size))
        body = self.process.stdout.read(answer["body"])
        answer["ids"] = list(struct.unpack(f"<{len(body) // 4}i", body))
        return answer

    def records(self, records, targets="assistant"):
        """(ids, mask) of each."""
        answer = self.ask(do="records", targets=targets, records=records)
        if "error" in answer:
            raise ValueError(answer["error"])
        found, at = [], 0
        for count, spans in zip(answer["counts"], answer["targets"]):
            mask = [0] * count
            for first, last in spans:
                mask[first:last] = [1] * (last - first)
            found.append((answer["ids"][at:at + count], mask))
            at += count
        return found

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def byte_level():
    """Like GPT-2, Qwen and Llama 3."""
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=400, special_tokens=CONTROL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    made.add_tokens([AddedToken("foxes", normalized=True)])
    return made


def byte_fallback():
    """Like SentencePiece's BPE in Mistral and Gemma."""
    vocabulary = {token: i for i, token in enumerate(CONTROL + [f"<0x{i:02X}>" for i in range(256)])}
    for letter in ["▁", *sorted(set("".join(CORPUS)) - {" ", "\n"})]:
        vocabulary.setdefault(letter, len(vocabulary))
    merges = []
    for pair in [("▁", "t"), ("h", "e"), ("▁t", "he"), ("o", "r"), ("l", "l"), ("▁", "a"), ("▁", "▁")]:
        merges.append(pair)
        vocabulary.setdefault("".join(pair), len(vocabulary))
    made = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL])
    made.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", vocabulary["<s>"])])
    return made


def sentencepiece_model(whole=(), **settings):
    """The bytes of a tokenizer.model: a BPE whose merges have scores, as SentencePiece writes them."""
    proto = sentencepiece_model_pb2.ModelProto()
    words = sorted({word for text in CORPUS for word in ("▁" + text.replace(" ", " ▁")).split(" ")})
    parts = {word[:end] for word in words for end in range(2, len(word) + 1)} | {"he", "or", "ll", "▁▁"}
    letters = ["▁", *sorted(set("".join(CORPUS)) - {" ", "\n"})]
    kinds = [("<unk>", 2), ("<s>", 3), ("</s>", 3), *((text, 4) for text in whole), *((f"<0x{i:02X}>", 6) for i in range(256))]
    kinds += [(text, 1) for text in sorted(parts - set(letters), key=lambda text: (len(text), text)) + letters]
    for number, (text, kind) in enumerate(kinds):
        proto.pieces.add(piece=text, score=-float(number) if kind == 1 else 0.0, type=kind)
    proto.trainer_spec.model_type, proto.trainer_spec.byte_fallback, proto.trainer_spec.unk_id = 2, True, 0
    proto.normalizer_spec.remove_extra_whitespaces = False
    for name, value in settings.items():
        setattr(proto.normalizer_spec, name, value)
    return proto.SerializeToString()


def write_folder(folder, made, template=None):
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if template:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def chats():
    for text in HARD:
        yield [{"role": "user", "content": text or "x"}, {"role": "assistant", "content": f"say {text} again"}]
    yield [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one"},
           {"role": "assistant", "content": "first"}, {"role": "user", "content": "two"},
           {"role": "assistant", "content": "second\n\n  answer"}]


class TokenizersTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)

    def worker(self, folder, **options):
        made = WorkerProcess(folder, **options)
        self.addCleanup(made.close)
        return made

    def kinds(self):
        return {"byte level": byte_level(), "byte fallback": byte_fallback()}

    def test_ids_of_texts_match_transformers(self):
        for kind, made in self.kinds().items():
            folder = write_folder(self.folder / kind, made)
            theirs = transformers.AutoTokenizer.from_pretrained(folder)
            found = self.worker(folder).records([{"text": text} for text in HARD])
            for text, (ids, mask) in zip(HARD, found):
                with self.subTest(kind=kind, text=text[:40]):
                    self.assertEqual(ids, theirs(text)["input_ids"] + [theirs.eos_token_id])
                    self.assertEqual(mask, [1] * len(ids))

    def test_ids_of_a_tokenizer_model_match_transformers(self):
        cases = {"prefix of the first": ({}, {}), "prefix of each": ({"legacy": True}, {}), "none": ({}, {"add_dummy_prefix": False})}
        for name, (config, settings) in cases.items():
            folder = self.folder / name
            folder.mkdir()
            (folder / "tokenizer.model").write_bytes(sentencepiece_model(**settings))
            config = {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": "add_dummy_prefix" not in settings, **config}
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            # transformers asks for the package sentencepiece, and then reads the file by another.
            with unittest.mock.patch("transformers.convert_slow_tokenizer.requires_backends"):
                theirs = transformers.AutoTokenizer.from_pretrained(folder)
            worker = self.worker(folder)
            texts = [*HARD, "a</s>b<s> c"]
            for text, (ids, mask) in zip(texts, worker.records([{"text": text} for text in texts])):
                with self.subTest(name, text=text[:40]):
                    self.assertEqual(ids, [1, *theirs(text, add_special_tokens=False)["input_ids"], 2])
            ids = theirs("the lazy dog 日", add_special_tokens=False)["input_ids"]
            self.assertEqual(worker.ask(do="decode", ids=ids)["text"], "the lazy dog 日")

    def test_pieces_that_a_user_defined_stay_whole(self):
        (self.folder / "tokenizer.model").write_bytes(sentencepiece_model(whole=["<tag>", "▁▁▁", "quick"]))
        worker = self.worker(self.folder)
        [(ids, _)] = worker.records([{"text": "a<tag>quickly   the"}])
        self.assertEqual([token for token in ids if token in (3, 4, 5)], [3, 5, 4])

    def test_a_tokenizer_model_of_another_kind_is_refused(self):
        file = self.folder / "tokenizer.model"
        whole = sentencepiece_model()
        for name, content, words in (("spaces", sentencepiece_model(remove_extra_whitespaces=True), "is not a BPE .* sentencepiece"),
                                     ("cut", whole[:-3], "damaged"), ("other", b"\xff" * 40, "damaged"), ("empty", b"", "not a BPE")):
            file.write_bytes(content)
            with self.subTest(name):
                self.assertRegex(self.worker(self.folder).opened.get("error", ""), words)

    def test_chats_match_transformers(self):
        for kind, made in self.kinds().items():
            for family, template in TEMPLATES.items():
                folder = write_folder(self.folder / kind / family, made, template)
                theirs = transformers.AutoTokenizer.from_pretrained(folder)
                conversations = list(chats())
                found = self.worker(folder).records([{"messages": messages} for messages in conversations])
                for messages, (ids, mask) in zip(conversations, found):
                    wanted = theirs.apply_chat_template(
                        messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
                    with self.subTest(kind=kind, family=family, text=messages[-1]["content"][:40]):
                        self.assertEqual(ids, list(wanted["input_ids"]))
                        self.assertEqual(mask, list(wanted["assistant_masks"]))

    def test_spans_without_tags_hold_the_same_answers(self):
        made = byte_level()
        for family, template in TEMPLATES.items():
            tagged = self.worker(write_folder(self.folder / "with" / family, made, template))
            plain = self.worker(write_folder(self.folder / "without" / family, made, without_spans(template)))
            records = [{"messages": messages} for messages in chats()]
            for targets in ("assistant", "last"):
                for (ids, marked), (others, found) in zip(tagged.records(records, targets), plain.records(records, targets)):
                    self.assertEqual(ids, others)
                    with self.subTest(family=family, targets=targets):
                        # Besides what is marked only the line end behind a turn.
                        more = [i for i, (a, b) in enumerate(zip(marked, found)) if a != b]
                        self.assertTrue(all(found[i] for i in more), (marked, found))
                        self.assertLessEqual(len(more), 2 * sum(a < b for a, b in zip(found, found[1:] + [1])) + 4)

    def test_all_that_is_marked_of_the_last_turn_is_learnt(self):
        """Thoughts, an answer and its end may be marked each on its own; and turns may follow that are not the assistant's."""
        body = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% if m.thoughts %}" \
               "{% generation %}({{ m.thoughts }}){% endgeneration %}{% endif %}{% generation %}{{ m.content }}" \
               "{% endgeneration %}{% generation %}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>" \
               "{% endif %}\n{% endfor %}"
        first, second = ({"role": "assistant", "content": word, "thoughts": "why"} for word in ("one", "two"))
        plain = {"role": "assistant", "content": "two"}
        user = {"role": "user", "content": "ask"}
        chosen = {"the last": ([user, first, user, second], "(why)two<|im_end|>"),
                  "the only": ([user, first, user], "(why)one<|im_end|>"),
                  "without thoughts": ([user, first, user, plain, user], "two<|im_end|>")}
        # Templates that refuse the messages before the answer, or show them otherwise.
        strict = "{% if messages[-1].role != 'assistant' %}{{ raise_exception('no answer') }}{% endif %}"
        forgetful = body.replace("if m.thoughts", "if m.thoughts and loop.last")
        worker = self.worker(write_folder(self.folder / "blocks", byte_level(), body))
        self.learns(worker, chosen)
        single = "{% for m in messages %}{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}" \
                 "{% endif %}{% endfor %}"
        worker = self.worker(write_folder(self.folder / "single", byte_level(), strict + single))
        self.learns(worker, {"one block a turn": ([user, first, user, second], "two")})
        for name, template, messages in (("strict", strict + body, [user, first, user, second]),
                                         ("forgetful", forgetful, [user, first, second])):
            worker = self.worker(write_folder(self.folder / name, byte_level(), template))
            with self.subTest(template=name), self.assertRaisesRegex(ValueError, f"message {len(messages)}: .* marks other"):
                worker.records([{"messages": messages}], "last")

    def test_messages_that_are_left_out_are_not_learnt(self):
        body = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}" \
               "<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}" \
               "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
        unmarked = body.replace("{% generation %}", "").replace("{% endgeneration %}", "")
        user = {"role": "user", "content": "ask"}
        for name, template in (("marked", body), ("unmarked", unmarked)):
            worker = self.worker(write_folder(self.folder / f"left-{name}", byte_level(), template))
            for left in ({"train": False}, {"weight": 0}):
                one, two = ({"role": "assistant", "content": word} for word in ("one", "two"))
                messages = [user, one, user, {**two, **left}]
                for targets in ("assistant", "last"):
                    [(ids, mask)] = worker.records([{"messages": messages}], targets)
                    text = worker.ask(do="decode", ids=[t for t, target in zip(ids, mask) if target])["text"]
                    with self.subTest(template=name, targets=targets, left=left):
                        self.assertEqual(text, "one<|im_end|>")
                        self.assertEqual(ids, worker.records([{"messages": [user, one, user, two]}], "all")[0][0])
        two_marks = body.replace("{{ m.content }}<", "{{ m.content }}{% endgeneration %}{% generation %}<", 1)
        worker = self.worker(write_folder(self.folder / "left-twice", byte_level(), two_marks))
        with self.assertRaisesRegex(ValueError, "marks 4 texts of 2 messages"):
            worker.records([{"messages": [user, one, user, {**two, "train": False}]}], "assistant")

    def learns(self, worker, chats):
        """chats: (messages, the text that is learnt of the last turn) by name."""
        for name, (messages, learnt) in chats.items():
            [(ids, mask)] = worker.records([{"messages": messages}], "last")
            text = worker.ask(do="decode", ids=[token for token, target in zip(ids, mask) if target])["text"]
            with self.subTest(chat=name):
                self.assertEqual(text, learnt)

    def prefixing(self):
        """Tokenizers that put a space before a text, each in another way, by name."""
        spaced = byte_level()
        spaced.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        found = {"prepend": byte_fallback(), "byte level": spaced}
        for scheme, split in (("first", False), ("always", True)):
            made = byte_fallback()
            made.normalizer = normalizers.NFC()
            made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)])
            found[f"metaspace {scheme}"] = made
        found["unknown letters"] = Tokenizer.from_str(made.to_str())
        found["unknown letters"].model.byte_fallback = False
        found["unknown letters"].model.fuse_unk = False
        return found

    def test_no_space_is_put_into_a_text_that_goes_on(self):
        """Neither where a long text is cut into parts, nor where a completion is encoded apart from its prompt."""
        parts = ["the fox,\n", "jumps 日 over\n", "\n", "hello </s> world\n", " is"]
        pairs = [("or", "ll the"), ("the", " fox"), ("the ", "fox"), ("", "the"), ("jumps", "")]
        for name, made in self.prefixing().items():
            with self.subTest(tokenizer=name):
                worker = self.worker(write_folder(self.folder / name, made))
                whole, joined = made.encode("".join(parts)).ids, []
                for i, part in enumerate(parts):
                    [(ids, _)] = worker.records([{"text": part, "first": i == 0, "last": False}])
                    joined += ids
                self.assertEqual(joined, whole)
                for prompt, completion in pairs:
                    [(ids, _)] = worker.records([{"prompt": prompt, "completion": completion}])
                    self.assertEqual(made.decode(ids), made.decode(made.encode(prompt + completion).ids), (prompt, completion))

    def test_a_text_that_goes_on_is_encoded_alone_where_no_space_is_put_before_it(self):
        made = byte_level()
        worker = self.worker(write_folder(self.folder / "bare", made))
        for text in HARD:
            [(ids, _)] = worker.records([{"text": text, "first": False, "last": False}])
            self.assertEqual(ids, made.encode(text).ids)

    def test_turns_keep_their_tokens_where_spaces_are_left_out_of_offsets(self):
        made = byte_level()
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, trim_offsets=True)
        made.post_processor = processors.ByteLevel(trim_offsets=True)
        worker = self.worker(write_folder(self.folder / "trimmed", made, without_spans(TEMPLATES["qwen2"])))
        user = {"role": "user", "content": "x"}
        # This tokenizer puts a space before what follows a control token, as the line end is.
        for content in ("b", " b", "the answer"):
            for behind in ([], [user], [user, user]):
                chat = [user, {"role": "assistant", "content": content}, *behind]
                self.learns(worker, {f"{content!r} and {len(behind)} turns": (chat, f"{content}<|im_end|> \n")})

    def test_a_header_that_takes_the_space_behind_it_is_not_learnt(self):
        made = byte_level()
        made.add_special_tokens([AddedToken(token, special=True, rstrip=True) for token in ("<|assistant|>", "<|end|>")])
        template = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}" \
                   "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
        worker = self.worker(write_folder(self.folder / "taking", made, template))
        user = {"role": "user", "content": "x"}
        for content in ("b", " b", "\n\nb"):
            answer = {"role": "assistant", "content": content}
            self.learns(worker, {repr(content): ([user, answer, user], "b<|end|>")})

    def test_a_header_is_not_learnt_where_the_generation_prompt_goes_on(self):
        template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" \
                   "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
        worker = self.worker(write_folder(self.folder / "thoughts", byte_level(), template))
        user = {"role": "user", "content": "x"}
        for content in ("b", "<b>", "<think>\nso\n</think>b", "xx"):
            answer = {"role": "assistant", "content": content}
            learnt = content.removeprefix("<think>\n") + "<|im_end|>\n"  # what the prompt has is not the answer's
            self.learns(worker, {content: ([user, answer, user, answer], learnt), f"{content}, then a user": ([user, answer, user], learnt)})

    def test_tools_and_lists_of_content_match_transformers(self):
        template = "{% if tools %}{{ tools | tojson }}\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n" \
                   "{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}<|im_end|>{% endfor %}"
        folder = write_folder(self.folder / "tools", byte_level(), template)
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        tools = [{"type": "function", "function": {"name": "weather", "description": "<é> & \"x\"",
                                                   "parameters": {"z": 1, "a": [True, None]}}}]
        messages = [{"role": "user", "content": "how warm?"},
                    {"role": "assistant", "content": "", "tool_calls": [{"name": "weather", "arguments": {"z": "ü"}}]}]
        wanted = theirs.apply_chat_template(messages, tools=tools, tokenize=True, return_dict=True)["input_ids"]
        worker = self.worker(folder)
        [(ids, _)] = worker.records([{"messages": messages, "tools": tools}], "all")
        self.assertEqual(ids, list(wanted))
        parts = [dict(messages[0], content=[{"type": "text", "text": "how "}, {"type": "text", "text": "warm?"}]), messages[1]]
        [(others, _)] = worker.records([{"messages": parts, "tools": json.dumps(tools)}], "all")
        self.assertEqual(others, ids)
        [(bare, _)] = worker.records([{"messages": messages}], "all")
        for none in ("", " ", "[]", "{}", "null"):
            self.assertEqual(worker.records([{"messages": messages, "tools": none}], "all")[0][0], bare, none)
        for wrong in ("none", "[" * 3000 + "]" * 3000):
            with self.assertRaisesRegex(ValueError, '"tools" is a text that is not JSON'):
                worker.records([{"messages": messages, "tools": wrong}])

    def test_a_prompt_is_the_beginning_of_its_record(self):
        """With tools, which have a template of their own, and a list as content; in the order of keys of the record."""
        folder = write_folder(self.folder / "asked", byte_level(), TEMPLATES["qwen2"])
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates/tool_use.jinja").write_text("{{ tools | tojson }}\n" + TEMPLATES["qwen2"])
        worker = self.worker(folder)
        asked = [{"role": "user", "content": [{"type": "text", "text": "how "}, {"type": "text", "text": "warm?"}]}]
        answer = {"role": "assistant", "content": "very"}
        for more in ({}, {"tools": [{"z": 1, "a": 2}]}, {"tools": json.dumps([{"z": 1, "a": 2}])}):
            head = worker.ask(do="prompt", record={"messages": asked, **more})["ids"]
            [(whole, _)] = worker.records([{"messages": [*asked, answer], **more}])
            self.assertEqual(whole[:len(head)], head)
            text = worker.ask(do="decode", ids=head)["text"]
            self.assertEqual(text.startswith('[{"z": 1, "a": 2}]'), bool(more), text)
            self.assertTrue(text.endswith("how warm?<|im_end|>\n<|im_start|>assistant\n"), text)
        for messages in ({}, ["how warm?"], [{"role": "user", "content": [{"type": "image"}]}]):
            self.assertRegex(worker.ask(do="prompt", record={"messages": messages})["error"], "is no")

    def test_completions_are_targets_with_their_end(self):
        folder = write_folder(self.folder / "pairs", byte_fallback())
        worker = self.worker(folder)
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        for prompt, completion in (("2 + 2 =", " four"), ("", "x"), ("fo", "x the"), ("日", "本\n")):
            [(ids, mask)] = worker.records([{"prompt": prompt, "completion": completion}])
            head = theirs(prompt)["input_ids"]
            self.assertEqual(ids[:len(head)], head)
            self.assertEqual(mask, [0] * len(head) + [1] * (len(ids) - len(head)))
            self.assertEqual(ids[-1], theirs.eos_token_id)
            self.assertEqual(theirs.decode(ids, skip_special_tokens=True).replace(" ", ""),
                             (prompt + completion).replace(" ", ""))

    def test_vocabulary_and_merges_match_their_tokenizer_json(self):
        made = byte_level()
        made.normalizer = None
        folder = write_folder(self.folder / "whole", made)
        parts = self.folder / "parts"
        parts.mkdir()
        made.model.save(str(parts))
        content = json.loads((folder / "tokenizer.json").read_text())
        added = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in content["added_tokens"]}
        (parts / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "GPT2Tokenizer", "eos_token": "</s>", "added_tokens_decoder": added}))
        records = [{"text": text} for text in HARD]
        self.assertEqual(self.worker(parts).records(records), self.worker(folder).records(records))

    def older_folder(self, name, files):
        """vocab.json and merges.txt of GPT-2's kind with a configuration that lists no tokens."""
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.train_from_iterator(CORPUS, trainers.BpeTrainer(
            vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False))
        folder = self.folder / name
        folder.mkdir()
        made.model.save(str(folder))
        (folder / "config.json").write_text('{"model_type": "gpt2"}')
        for file, content in files.items():
            (folder / file).write_text(json.dumps(content))
        return folder, made.get_vocab_size()

    def test_tokens_that_no_configuration_lists_match_transformers(self):
        text = "<|user|>hello<|bot|>world <|endoftext|>x"
        template = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
        base = {"tokenizer_config.json": {"model_max_length": 1024}}
        for name, more in (("class", {}), ("map", {"special_tokens_map.json": {
                "eos_token": "<|endoftext|>", "additional_special_tokens": ["<|user|>"]}}),
                           ("added", {"added_tokens.json": {"<|bot|>": 301, "<|user|>": 300}}),
                           ("map first", {"tokenizer_config.json": {"eos_token": "the"},
                                          "special_tokens_map.json": {"eos_token": "<|endoftext|>"}})):
            folder, size = self.older_folder(name, {**base, **more})
            self.assertEqual(size, 300)
            (folder / "chat_template.jinja").write_text(template)
            theirs = transformers.AutoTokenizer.from_pretrained(folder)
            self.assertEqual(theirs.eos_token, "<|endoftext|>")
            messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]
            worker = self.worker(folder)
            with self.subTest(name):
                [(ids, _)] = worker.records([{"text": text}])
                self.assertEqual(ids, theirs(text)["input_ids"] + [theirs.eos_token_id])
                [(ids, _)] = worker.records([{"messages": messages}], "all")
                self.assertEqual(ids, list(theirs.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"]))
        folder, _ = self.older_folder("none", {"tokenizer_config.json": {"eos_token": None}})
        self.assertIsNone(transformers.AutoTokenizer.from_pretrained(folder).eos_token)
        [(ids, _)] = self.worker(folder).records([{"text": "hello"}])
        self.assertEqual(ids, transformers.AutoTokenizer.from_pretrained(folder)("hello")["input_ids"])
        folder, _ = self.older_folder("gap", {**base, "added_tokens.json": {"<|bot|>": 310}})
        self.assertIn("its added token '<|bot|>' is number 310", self.worker(folder).opened["error"])

    def test_a_vocabulary_without_letters_of_the_alphabet_keeps_its_first_token_first(self):
        for name, options in {"bases": {}, "unknown": {"unk_token": "<s>"}}.items():
            made = Tokenizer(models.BPE({"<s>": 0, "</s>": 1, "C": 2, "G": 3}, [], **options))
            made.add_special_tokens(["<s>", "</s>"])
            made.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
            [(ids, _)] = self.worker(write_folder(self.folder / name, made)).records([{"text": "CGC"}])
            self.assertEqual(ids, [0, 2, 3, 2, 1], name)

    def test_a_token_number_beyond_all_is_refused(self):
        made = Tokenizer(models.BPE({"a": 0, "b": 1 << 24}, []))
        opened = self.worker(write_folder(self.folder / "far", made)).opened
        self.assertIn("its token 'b' is number 16777216, and strait knows numbers up to 16777215", opened["error"])

    def test_a_template_that_ends_chats_with_eos_takes_several_turns(self):
        template = without_spans(TEMPLATES["phi3"]).removesuffix("{% endif %}") + "{% else %}{{ eos_token }}{% endif %}"
        worker = self.worker(write_folder(self.folder / "closed", byte_level(), template))
        plain = self.worker(write_folder(self.folder / "open", byte_level(), without_spans(TEMPLATES["phi3"])))
        records = [{"messages": messages} for messages in chats()]
        for (ids, mask), (others, found) in zip(worker.records(records), plain.records(records)):
            self.assertEqual((ids[:-1], mask[:-1]), (others, found))
            self.assertEqual(mask[-1], 1, "the end of the chat is learnt")

    def test_hostile_templates_end_in_a_sentence(self):
        (self.folder / "secret").write_text("secret")
        cases = {
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": "did not end within",
            "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}": "calls itself without end",
            "{{ 'a' * 10000000000 }}": "too long", "{{ 9 ** 9 ** 9 ** 9 }}": "too large",
            "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}": "more than",
            "{% include '" + str(self.folder / "secret") + "' %}": "refused",
            "{{ messages.__class__.__mro__[1].__subclasses__() }}": "unsafe",
            "{{ cycler.__init__.__globals__.os.popen('id').read() }}": "unsafe", "{% if %}": "refused",
            "{{ raise_exception('only two turns') }}": "only two turns", "{{ undefined_thing.x }}": "undefined",
            "{% do messages.append(1) %}": "refused",
        }
        chat = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
        for number, (template, words) in enumerate(cases.items()):
            with self.subTest(template=template[:50]):
                worker = self.worker(write_folder(self.folder / f"bad{number}", byte_level(), template))
                opened = worker.opened.get("error")
                if opened is None:
                    with self.assertRaises(ValueError) as caught:
                        worker.records([chat], "all")
                    opened = str(caught.exception)
                self.assertIn(words, opened)
                self.assertNotIn("\n", opened)

    def test_templates_that_change_their_past_are_refused(self):
        template = "{% for m in messages %}{{ m.role }}: {{ m.content if loop.last else '...' }}\n{% endfor %}"
        worker = self.worker(write_folder(self.folder / "past", byte_level(), template))
        turn = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        with self.assertRaisesRegex(ValueError, "message 2: .*differently when more messages follow"):
            worker.records([{"messages": turn + turn}])

    def test_an_answer_whose_place_is_not_known_is_refused(self):
        """The template takes no beginning of the chat that lacks the answer, so what comes before it is not known."""
        body = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        picky = "{% if messages[-1].role != 'assistant' %}{{ raise_exception('no answer') }}{% endif %}" + body
        turn = [{"role": "user", "content": "ask"}, {"role": "assistant", "content": "say"}]
        worker = self.worker(write_folder(self.folder / "picky", byte_level(), picky))
        for targets in ("assistant", "last"):
            with self.assertRaisesRegex(ValueError, "message 2: .*its place is not known"):
                worker.records([{"messages": turn}], targets)
        # Of a turn that is not learnt the place is not asked: here the template refuses one that begins a chat.
        later = "{% if messages | length == 1 %}{{ raise_exception('too short') }}{% endif %}" + body
        worker = self.worker(write_folder(self.folder / "later", byte_level(), later))
        records = [{"messages": turn + turn + turn[:1]}]
        with self.assertRaisesRegex(ValueError, "message 2: .*its place is not known"):
            worker.records(records)
        [(ids, mask)] = worker.records(records, "last")
        learnt = [token for token, marked in zip(ids, mask) if marked]
        self.assertIn("say", worker.ask(do="decode", ids=learnt)["text"])
        self.assertNotIn("ask", worker.ask(do="decode", ids=learnt)["text"])

    def test_a_lower_limit_of_memory_is_kept(self):
        """Without root's rights a limit of the system, or of a batch job, cannot be raised."""
        limit = 6 << 30
        worker = self.worker(write_folder(self.folder / "limited", byte_level()),
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        self.assertNotIn("error", worker.opened)
        self.assertEqual(resource.prlimit(worker.process.pid, resource.RLIMIT_AS), (limit, limit))

    def test_threads_of_many_processors_fit_into_its_memory(self):
        """The C library reserves 64 MiB of address space for each: 8 GiB are those of 128."""
        worker = self.worker(write_folder(self.folder / "threads", byte_level()),
                             env={**os.environ, "RAYON_NUM_THREADS": "256", "MALLOC_ARENA_MAX": "1000"})
        self.assertEqual(len(worker.records([{"text": text} for text in CORPUS * 99])), 99 * len(CORPUS))

    def test_what_ends_a_turn_of_the_template_ends_an_answer(self):
        """A base model's configuration may name only the end of a text."""
        body = "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}{{ END }}\n{% endfor %}"
        for name, end, ends in (("control", "'<|im_end|>'", {"</s>", "<|im_end|>"}), ("eos", "eos_token", {"</s>"}),
                                ("none", "''", {"</s>"}), ("refused", "raise_exception('no')", {"</s>"})):
            with self.subTest(name):
                made = byte_level()
                worker = self.worker(write_folder(self.folder / f"turn-{name}", made, body.replace("END", end)))
                self.assertEqual(set(worker.opened["ends"]), {made.token_to_id(token) for token in ends})

    def test_null_keys_and_names_of_thoughts_match_transformers(self):
        user = {"role": "user", "content": "None of it?", "name": None}
        answer = {"role": "assistant", "content": "yes"}
        calls = {"role": "assistant", "content": None, "tool_calls": [{"name": "look"}]}
        chats = [[user, {**answer, "tool_calls": None, "name": None}], [user, calls],
                 *([user, {**answer, key: "hm"}] for key in ("reasoning_content", "thinking", "reasoning"))]
        body = ("{% for m in messages %}<s>{{ m.role }}{% if m.name is defined %} ({{ m.name }}){% endif %}: SAYS"
                "{% if m.tool_calls is defined %}{{ m.tool_calls | length }}{% endif %}{% endfor %}")
        for says in ("{{ m.content | trim }}", "{{ m.reasoning_content }}{{ m.content }}", "{{ m.thinking }}"):
            folder = write_folder(self.folder / str(len(says)), byte_level(), body.replace("SAYS", says))
            theirs = transformers.AutoTokenizer.from_pretrained(folder)
            found = self.worker(folder).records([{"messages": chat} for chat in chats], "all")
            for chat, (ids, _) in zip(chats, found):
                with self.subTest(says, chat=chat):
                    self.assertEqual(ids, list(theirs.apply_chat_template(chat, tokenize=True, return_dict=True)["input_ids"]))

    def test_tokens_that_other_files_name_match_transformers(self):
        """tokenizer.json lacks them."""
        token = {"content": "<|new|>", "special": True, "lstrip": False, "rstrip": True, "normalized": False, "single_word": False}
        configs = {"end": {"eos_token": "<|end_of_all|>", "pad_token": "<pad>"}, "extra": {"extra_special_tokens": ["<|new|>"]},
                   "additional": {"additional_special_tokens": ["<|new|>"], "unk_token": "<unknown>"},
                   "decoder": {"added_tokens_decoder": {"450": token}, "eos_token": "<|end_of_all|>"},
                   "beginning": {"add_bos_token": True}, "no beginning": {"add_bos_token": False}, "added": {}}
        for name, more in configs.items():
            made = byte_level()
            if name == "no beginning":
                made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", made.token_to_id("<s>"))])
            folder = write_folder(self.folder / name, made)
            config = json.loads((folder / "tokenizer_config.json").read_text())
            (folder / "tokenizer_config.json").write_text(json.dumps({**config, **more}))
            if name == "added":
                (folder / "added_tokens.json").write_text(json.dumps({"<|new|>": made.get_vocab_size()}))
            theirs = transformers.AutoTokenizer.from_pretrained(folder)
            for text, (ids, _) in zip(HARD, self.worker(folder).records([{"text": text + " <|new|> b"} for text in HARD])):
                with self.subTest(name, text=text[:40]):
                    self.assertEqual(ids, theirs(text + " <|new|> b")["input_ids"] + [theirs.eos_token_id])

    def test_no_package_comes_from_beside_the_script(self):
        programs = self.folder / "bin"
        programs.mkdir()
        for module in ("jinja2", "array"):
            (programs / f"{module}.py").write_text("raise SystemExit('of the wrong folder')\n")
        script = shutil.copy(SCRIPT, programs)
        worker = self.worker(write_folder(self.folder / "beside", byte_level()), script=script, cwd=programs)
        self.assertNotIn("error", worker.opened)

    def test_ids_of_a_thousand_texts_in_one_request_match_transformers(self):
        """Also prints how fast they came."""
        folder = write_folder(self.folder / "many", byte_level())
        worker, theirs = self.worker(folder), transformers.AutoTokenizer.from_pretrained(folder)
        texts = [f"{i}: " + " ".join(CORPUS[:8]) * 4 for i in range(1000)]
        worker.records([{"text": text} for text in texts[:10]])
        begun = time.monotonic()
        found = [ids for ids, _ in worker.records([{"text": text} for text in texts])]
        seconds = time.monotonic() - begun
        wanted = [ids + [theirs.eos_token_id] for ids in theirs(texts)["input_ids"]]
        self.assertEqual([i for i in range(len(texts)) if found[i] != wanted[i]], [])
        print(f"{sum(map(len, found)) / seconds / 1e6:.2f} million tokens/s", file=sys.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
