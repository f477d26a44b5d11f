"""The recipes that `strait init` offers, each with a tiny model of its family in place, outside of the checkout; and the
whole way of a user with one of them: init, edit two paths, run, generate --chat, export, PEFT."""

import json
import os
import re
import shutil
import sys

import runs

try:
    import torch
    from peft import PeftModel
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import (AutoModelForCausalLM, AutoTokenizer, GPT2Config, GptOssConfig, LlamaConfig,
                              PreTrainedTokenizerFast, Qwen2Config, Qwen3MoeConfig)
except ImportError as error:
    print(f"skipped: {error}; ./strait test installs it")
    sys.exit(77)

TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}"
            "{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
WIDTH = {"initializer_range": 0.2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64}
COLOURS = ["red", "green", "blue", "white"]


def tiny_tokenizer():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(["which colour has number user assistant it is"] * 9, trainers.BpeTrainer(
        vocab_size=320, show_progress=False, special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", chat_template=TEMPLATE)


def save_model(config, folder):
    """A directory as Hugging Face has them: config, weights, tokenizer."""
    torch.manual_seed(3)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)


class Recipes(runs.RunCase):
    # What a run needs to end in seconds; the recipe's own lines stay as they are.
    SHORT = ["train.steps=3", "data.row=64", "train.warmup=1"]
    # recipe -> the model that stands in its place, its data
    FAMILIES = {
        "gpt2-full": (lambda: GPT2Config(vocab_size=400, n_positions=128, n_embd=32, n_layer=4, n_head=2), "chats.jsonl"),
        "qwen2-lora-chat": (lambda: Qwen2Config(vocab_size=400, num_hidden_layers=4, tie_word_embeddings=True, **WIDTH),
                            "chats.jsonl"),
        "qwen2-dpo": (lambda: Qwen2Config(vocab_size=400, num_hidden_layers=4, tie_word_embeddings=True, **WIDTH),
                      "pairs.jsonl"),
        "llama3-qlora": (lambda: LlamaConfig(vocab_size=400, num_hidden_layers=4, **WIDTH), "chats.jsonl"),
        "qwen3-moe-lora": (lambda: Qwen3MoeConfig(vocab_size=400, num_hidden_layers=4, num_experts=8, num_experts_per_tok=2,
                                                  moe_intermediate_size=16, head_dim=8, **WIDTH), "chats.jsonl"),
        "gpt-oss-qlora": (lambda: GptOssConfig(vocab_size=400, num_hidden_layers=4, num_local_experts=4, num_experts_per_tok=2,
                                               sliding_window=16, head_dim=8, **WIDTH), "chats.jsonl"),
        "text-pretraining": (lambda: Qwen2Config(vocab_size=400, num_hidden_layers=4, tie_word_embeddings=True, **WIDTH),
                             "corpus.txt"),
    }

    def setUp(self):
        super().setUp()
        os.environ["STRAIT_CACHE"] = str(self.home / "cache")
        self.addCleanup(os.environ.pop, "STRAIT_CACHE")
        shutil.rmtree(self.home / "model")
        chats = [{"messages": [{"role": "user", "content": f"which colour has number {i % 4}?"},
                               {"role": "assistant", "content": f"it is {COLOURS[i % 4]}"}]} for i in range(128)]
        (self.home / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
        pairs = [{"prompt": [{"role": "user", "content": f"number {i}?"}],
                  "chosen": [{"role": "assistant", "content": COLOURS[i % 4]}],
                  "rejected": [{"role": "assistant", "content": "it"}]} for i in range(128)]
        (self.home / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
        (self.home / "corpus.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 400)

    def edited(self, name, file, model="model", data=None):
        """`strait init NAME FILE`, and the two lines that a user edits."""
        self.assertIn(file, self.ok("init", name, file))
        text = (self.home / file).read_text()
        for key, value in (("path", model), ("train", data)):
            lines = re.findall(rf"^{key} = \"[^\"]+\" +# edit", text, re.M)
            self.assertEqual(len(lines), 1, f"{key} in {name}")
            text = re.sub(rf"^{key} = \"[^\"]+\"", f'{key} = "{value}"', text, flags=re.M)
        (self.home / file).write_text(text)
        return file

    def test_every_recipe_runs_with_a_tiny_model_of_its_family(self):
        listed = self.ok("init", "--list")
        names = re.findall(r"^([a-z0-9-]+)  ", listed, re.M)
        self.assertEqual(sorted(names), sorted([*self.FAMILIES, "quickstart", "replicas"]), listed)
        for name, (config, data) in self.FAMILIES.items():
            with self.subTest(name):
                self.assertRegex(listed, rf"{name} +\w.*[^.]\n")
                shutil.rmtree(self.home / "model", ignore_errors=True)
                save_model(config(), self.home / "model")
                words = [self.edited(name, f"{name}.toml", data=data), "--set", "hosts.backend=local"]
                words += [word for one in self.SHORT for word in ("--set", one)]
                self.assertIn("forecast at", self.ok("plan", *words))
                self.assertIn("step 3/3", self.ok("run", *words))
                lines = self.run_of(name).metrics()
                self.assertEqual(len(lines), 3)
                self.assertTrue(all(0 < line["loss"] < 8 for line in lines), lines)
        for name in ("llama3-qlora", "qwen3-moe-lora", "gpt-oss-qlora"):
            self.assertIn("Not yet run on a GPU", (self.home / f"{name}.toml").read_text())

    def test_recipes_of_the_checkout_run_from_anywhere(self):
        for name in ("quickstart", "replicas"):
            self.ok("init", name)
            words = [f"{name}.toml", "--set", "train.steps=1"]
            self.assertIn("1 step of", self.ok("plan", *words))
        self.ok("run", "quickstart.toml", "--set", "train.steps=1")
        self.assertIn(f"strait run {'quickstart.toml'}", (self.home / "quickstart.toml").read_text())
        _, err = self.ended(10, "init", "quickstarts")
        self.assertRegex(err, "quickstarts; there are: gpt-oss-qlora, gpt2-full, .*quickstart")

    def test_chat_adapter_from_init_to_peft(self):
        steps = []

        def step(*words):
            out = self.ok(*words)
            steps.append(f"$ strait {' '.join(words)}\n{out}")
            return out

        save_model(self.FAMILIES["qwen2-lora-chat"][0](), self.home / "qwen")
        file = self.edited("qwen2-lora-chat", "chat.toml", model="qwen", data="chats.jsonl")
        local = ["--set", "hosts.backend=local", "--set", "data.row=64", "--set", "train.epochs=10",
                 "--set", "train.learning_rate=0.01", "--set", "train.batch=8"]
        step("run", file, *local)
        prompt = "which colour has number 2?"
        answer = step("generate", "runs/chat", "--chat", "--prompt", prompt, "--max-tokens", "12")
        step("export", "runs/chat", "adapter")
        if os.environ.get("STRAIT_SHOW"):
            print("\n".join(steps))

        base = AutoModelForCausalLM.from_pretrained(self.home / "qwen")
        tuned = PeftModel.from_pretrained(base, self.home / "adapter")
        tokenizer = AutoTokenizer.from_pretrained(self.home / "qwen")
        ids = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True,
                                            return_tensors="pt", return_dict=True)
        out = tuned.generate(**ids, max_new_tokens=12, do_sample=False, pad_token_id=0,
                             eos_token_id=tokenizer.eos_token_id)
        said = tokenizer.decode(out[0][ids["input_ids"].shape[1]:], skip_special_tokens=True)
        self.assertEqual(answer.strip(), said.strip())
        self.assertEqual(said.strip(), "it is blue")


if __name__ == "__main__":
    runs.main()
