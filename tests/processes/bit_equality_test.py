"""With raw float32 links a pipelined run is the one-process run, bit for bit: losses, gradient
norms, weights and moments, for every split and schedule, and before and after a resume.

GPT-2 with dropout and clipping. Every value of every choice; all pairs of a partition, a schedule and a depth are
held on threads (tests/stages/bit_equality_test.cpp), and random ones over processes (layouts_test.py).
"""

import json
import os
import shutil
import signal

import runs

STEPS, MIDDLE = 8, 4
ALWAYS = ("gemma2", "qwen3_moe", "qwen3_5_text")  # campaigns try all families
GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE = "gpipe", "1f1b", "interleaved", "zero_bubble"


def split(stages, schedule, depth=0, recompute="none", **more):
    return {
        "pipeline.stages": stages, "pipeline.schedule": schedule, "pipeline.depth": depth, "model.recompute": recompute,
        **more,
    }


class Compared(runs.RunCase):
    SETTINGS = {**runs.RunCase.SETTINGS, "train.steps": STEPS}

    def same_bits(self, reference, run, steps=STEPS):
        expected, got = reference.curve(), run.curve()
        self.assertEqual(sorted(expected), list(range(1, steps + 1)))
        for step in expected:
            self.assertEqual(got.get(step), expected[step], f"step {step}: loss, norm, rate")
        expected, got = reference.state(steps), run.state(steps)
        self.assertEqual(sorted(got), sorted(expected))
        different = [name for name in expected if got[name] != expected[name]]
        self.assertEqual(different, [], "tensors of the last checkpoint differ")


class Splits(Compared):
    def exported(self, run):
        self.ok("export", run.path, f"{run.path.name}-exported")
        return (self.home / f"{run.path.name}-exported" / "model.safetensors").read_bytes()

    def compare(self, splits, **common):
        reference = self.train("reference", {**split(1, GPIPE), **common})
        clipped = [m for m in reference.metrics() if m["grad_norm"] > self.SETTINGS["train.clip"]]
        self.assertTrue(clipped, "clipping never acted: the test shows less than it says")
        last = None
        for number, settings in enumerate(splits):
            with self.subTest(settings):
                last = self.train(f"split-{number}", {**settings, **common})
                self.same_bits(reference, last)
        self.assertEqual(self.exported(last), self.exported(reference))

    def test_splits_of_tied_model_match_bits(self):
        self.compare(
            [split(2, GPIPE, 0, "layer"), split(4, ONE_F_ONE_B, 2, "layer"), split(3, ZERO_BUBBLE, "auto", "layer"),
             split(2, ONE_F_ONE_B, 1, **{"hosts.shared_memory": False})]
        )

    def test_splits_of_untied_model_match_bits(self):
        self.write_model("untied", tie_word_embeddings=False)
        self.compare([split(3, GPIPE, 0), split(4, ONE_F_ONE_B, 1, "layer")], **{"model.path": "untied"})

    def test_splits_of_other_families_match_bits(self):
        small = {
            "vocab_size": 257,
            "max_position_embeddings": 32,
            "hidden_size": 24,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "intermediate_size": 40,
            "pad_token_id": 10,  # a byte of the data: its row gets no gradient from the input
        }
        families = {
            "llama": {"attention_dropout": 0.1},
            "gemma2": {"sliding_window": 7, "query_pre_attn_scalar": 8},
            "qwen3_moe": {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
                          "output_router_logits": True, "router_aux_loss_coef": 0.5},
            "qwen3_5_text": {"linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 8,
                             "linear_value_head_dim": 6},
            "deepseek_v3": {"num_key_value_heads": 6, "q_lora_rank": 10, "kv_lora_rank": 9, "qk_nope_head_dim": 6,
                            "qk_rope_head_dim": 4, "v_head_dim": 5, "n_routed_experts": 6, "num_experts_per_tok": 2,
                            "moe_intermediate_size": 12, "n_group": 3, "topk_group": 2, "first_k_dense_replace": 1},
            "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 7,
                        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        }
        chunks, thirds = split(2, INTERLEAVED), split(3, ONE_F_ONE_B, 1, "layer")
        splits = {"llama": [chunks], "gemma2": [thirds], "qwen3_moe": [chunks, thirds],
                  "qwen3_5_text": [chunks, thirds], "gpt_oss": [chunks], "deepseek_v3": [thirds]}
        for family, fields in families.items():
            if family not in ALWAYS and not runs.CAMPAIGN:
                continue
            folder = self.home / family
            folder.mkdir()
            config = {"model_type": family, **small, **fields}
            (folder / "config.json").write_text(json.dumps(config))
            common = {"model.path": family}
            reference = self.train(f"{family}-reference", {**split(1, GPIPE), **common})
            for number, settings in enumerate(splits[family]):
                with self.subTest(family=family, **settings):
                    run = self.train(f"{family}-{number}", {**settings, **common})
                    self.same_bits(reference, run)
                    for one, other in zip(reference.metrics(), run.metrics()):
                        self.same_load(one, other, family)

    def same_load(self, one, other, family):
        self.assertEqual(one["expert_load"], other["expert_load"])
        self.assertEqual(one["idle_experts"], other["idle_experts"])
        self.assertAlmostEqual(one["router_loss"], other["router_loss"], 5)
        if family == "qwen3_moe":  # from even to all tokens on the same two of six experts
            self.assertTrue(1 < one["expert_load"] <= 3, one)
            self.assertTrue(2 < one["router_loss"] < 6, one)
        elif family not in ("gpt_oss", "deepseek_v3"):
            self.assertEqual((one["expert_load"], one["router_loss"]), (0, 0))

    def test_interleaved_chunks_match_bits(self):
        self.write_data("eval.jsonl", 20)
        wide = {"pipeline.chunks": 2, "pipeline.partition": [[0, 0], [1, 1], [2, 2], [3, 3]]}
        self.compare([split(2, INTERLEAVED), split(2, INTERLEAVED, 1, "layer", **wide)],
                     **{"data.eval": "eval.jsonl", "train.eval_every": 4})
        run = self.run_of("split-0")
        self.assertEqual([p["chunks"] for p in run.plan()["processes"]], [[[0, 1], [3, 3]], [[2, 2], [4, 5]]])
        crossed = {one["boundary"] for one in run.metrics()[-1]["boundaries"]}
        self.assertEqual(crossed, {"0.0/0>1.0/0", "1.0/0>0.0/1", "0.0/1>1.0/1"})
        reference = [m["loss"] for m in self.run_of("reference").events("evaluated")]
        self.assertEqual([m["loss"] for m in run.events("evaluated")], reference)

    def test_few_micro_batches_match_bits(self):
        self.compare(
            [split(4, GPIPE, 0, "layer"), split(3, ONE_F_ONE_B, 0, **{"pipeline.partition": [[0, 0], [1, 1], [2, 3]]})],
            **{"train.micro_batch": 4},
        )


class Adapters(Compared):
    LORA = {
        "model.lora.rank": 3, "model.lora.dropout": 0.1, "model.lora.targets": ["c_attn", "c_fc", "mlp.c_proj"],
        "model.lora.rank_pattern.c_fc": 2,
    }

    def gradient_bytes(self, run):
        sums = {}
        for line in run.metrics():
            for one in line["boundaries"]:
                if one["direction"] == "backward":
                    name = one["boundary"]
                    sums[name] = sums.get(name, 0) + one["sent_bytes"]
        return sums

    def test_splits_of_adapted_model_match_bits(self):
        reference = self.train("reference", {**split(1, GPIPE), **self.LORA})
        trained = {name for name in reference.state(STEPS) if not name.startswith("frozen/")}
        self.assertEqual({name for name in trained if ".lora_" not in name}, set())
        self.assertIn("frozen/transformer.wte.weight", reference.state(STEPS))
        for number, settings in enumerate(
            [split(4, ONE_F_ONE_B, 0, "layer"), split(3, ZERO_BUBBLE, 1), split(2, INTERLEAVED)]
        ):
            with self.subTest(settings):
                self.same_bits(reference, self.train(f"split-{number}", {**settings, **self.LORA}))

    def test_no_gradients_cross_below_lowest_adapter(self):
        upper = {**self.LORA, "model.lora.layers": [2, 3]}
        reference = self.train("reference", {**split(1, GPIPE), **upper})
        run = self.train("split", {**split(4, ONE_F_ONE_B, 1), **upper})
        self.same_bits(reference, run)
        gradients = self.gradient_bytes(run)
        self.assertEqual(gradients["0.0>1.0"], 0)
        self.assertEqual(gradients["1.0>2.0"], 0)
        self.assertGreater(gradients["2.0>3.0"], 0)

    def test_rows_below_lowest_adapter_are_computed_and_sent_once(self):
        self.write_model("plain", resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
        self.write_data("eval.jsonl", 20)
        upper = {
            **self.LORA, "model.lora.layers": [2, 3], "model.path": "plain", "data.eval": "eval.jsonl",
            "train.eval_every": 7, "checkpoint.every": 10, "train.steps": 20,
        }
        anew = {"codec.cache": "0B", "codec.cache_disk": "0B"}
        reference = self.train("reference", {**split(4, GPIPE), **upper, **anew})
        epoch = reference.plan()["epoch_steps"]
        self.assertTrue(2 <= epoch < 8, "the run has too few epochs, or too many")
        self.assertTrue(all(self.forward_bytes(reference, step, "0.0>1.0") for step in (1, 20)))
        self.same_bits(reference, self.train("alone", {**split(1, GPIPE), **upper}), 20)
        run = self.train("kept", {**split(4, ONE_F_ONE_B, 1), **upper})
        self.same_bits(reference, run, 20)
        self.assertEqual([e["loss"] for e in run.events("evaluated")],
                         [e["loss"] for e in reference.events("evaluated")])
        self.sent_in_first_epoch_only(run, epoch)
        planned = {link["name"]: link["forward_bytes"] for link in run.plan()["links"]}
        self.assertEqual([planned[f"boundary {s}.0>{s + 1}.0"] > 0 for s in range(3)], [False, False, True])
        self.rewind_run(run, 10)
        self.resumed(run, "--set", "pipeline.stages=2")
        self.same_bits(reference, run, 20)
        self.assertGreater(self.forward_bytes(run, 11, "0.0>1.0"), 0, "a new process begins without rows")

    def forward_bytes(self, run, step, boundary):
        (line,) = [m for m in run.metrics() if m["step"] == step]
        return sum(one["sent_bytes"] for one in line["boundaries"]
                   if one["direction"] == "forward" and one["boundary"] == boundary)

    def sent_in_first_epoch_only(self, run, epoch):
        for step in range(1, 21):
            for boundary in ("0.0>1.0", "1.0>2.0"):
                self.assertEqual(self.forward_bytes(run, step, boundary) > 0, step <= epoch, f"{boundary}, step {step}")
            self.assertGreater(self.forward_bytes(run, step, "2.0>3.0"), 0)

    def resumed_on_another_cut(self, settings, cut):
        """A run on one stage, and one on this cut that is resumed on two stages."""
        reference = self.train("reference", {**split(1, GPIPE), **settings})
        run = self.train("run", {**cut, **settings})
        self.same_bits(reference, run)
        self.rewind_run(run, MIDDLE)
        self.resumed(run, "--set", "pipeline.stages=2")
        self.same_bits(reference, run)
        return reference, run

    def test_adapted_run_resumes_on_another_cut(self):
        self.resumed_on_another_cut({**self.LORA, "checkpoint.every": MIDDLE}, split(3, ONE_F_ONE_B))

    def test_narrow_moments_match_bits_and_resume_with_others(self):
        settings = {"train.moments": "int8", "checkpoint.every": MIDDLE}
        reference, run = self.resumed_on_another_cut(settings, split(3, ONE_F_ONE_B, 1, "layer"))
        self.rewind_run(run, MIDDLE)
        self.resumed(run, "--set", 'train.moments="float32"')
        step = {m["step"]: m for m in run.metrics()}[STEPS]
        expected = {m["step"]: m for m in reference.metrics()}[STEPS]
        self.assertNotEqual(step["loss"], expected["loss"])
        self.assertAlmostEqual(step["loss"], expected["loss"], delta=0.02 * expected["loss"])
        code, out, err = self.strait("plan", self.write_recipe("onebit", {
            "train.moments": "int8", "pipeline.replicas": 2, "sync.method": "onebit_adam", "train.steps": 100}))
        self.assertEqual(code, 10, out + err)
        self.assertIn('exchanges all moments in float32', err)

    def test_muon_matches_bits_and_resumes_as_it_is_only(self):
        settings = {"train.optimizer": "muon", "checkpoint.every": MIDDLE}
        reference, run = self.resumed_on_another_cut(settings, split(3, ONE_F_ONE_B, 1, "layer"))
        adamw = self.train("adamw", {**split(1, GPIPE), "checkpoint.every": MIDDLE})
        self.assertNotEqual(adamw.curve()[STEPS], reference.curve()[STEPS])
        _, err = self.ended(10, "resume", "runs/run", "--set", "train.optimizer=adamw")
        self.assertIn("train.optimizer would change what this run is", err)
        _, err = self.ended(10, "plan", self.write_recipe("both", {**settings, "train.offload": "auto"}))
        self.assertIn("leave one of them out", err)

    def test_quantised_base_matches_bits_and_resumes_as_it_is_only(self):
        settings = {**self.LORA, "model.quantization": "int4", "checkpoint.every": MIDDLE}
        reference = self.train("reference", {**split(1, GPIPE), **settings})
        plain = self.train("plain", {**split(2, GPIPE), **self.LORA})
        self.assertNotEqual(plain.curve()[1], reference.curve()[1])
        for number, schedule in enumerate([split(2, INTERLEAVED), split(3, ONE_F_ONE_B, 1, "layer")]):
            with self.subTest(schedule):
                run = self.train(f"split-{number}", {**schedule, **settings})
                self.same_bits(reference, run)
        self.assertIn("its base is rounded to int4", self.ok("export", "runs/reference", "rounded", "--merge"))
        self.assertNotIn("rounded", self.ok("export", "runs/plain", "merged", "--merge"))
        self.rewind_run(run, MIDDLE)
        path = run.path.relative_to(self.home)
        code, out, err = self.strait("resume", path, "--set", "model.quantization=nf4")
        self.assertNotEqual(code, 0, out + err)
        self.assertIn("model.quantization would change what this run is", out + err)
        self.resumed(run, "--set", "pipeline.stages=2")
        self.same_bits(reference, run)

    def test_another_base_is_refused(self):
        base = self.write_model("base", weights=True)
        settings = {**self.LORA, "checkpoint.every": MIDDLE, "model.path": "base", "model.weights": "load"}
        run = self.train("run", {**split(2, ONE_F_ONE_B), **settings})
        self.rewind_run(run, MIDDLE)
        weights = (base / "model.safetensors").read_bytes()
        (base / "model.safetensors").write_bytes(weights[:-4] + b"\0\0\0\1")
        code, out, err = self.strait("resume", run.path.relative_to(self.home))
        self.assertNotEqual(code, 0, out + err)
        self.assertIn("is not the one that this run's adapters were trained with", out + err)
        # Nor is it asked, or merged with; the adapter alone needs no base.
        code, out, err = self.strait("export", "runs/run", "merged", "--merge")
        self.assertNotEqual(code, 0, out + err)
        self.assertIn("is not the one that this run's adapters were trained with", err)
        self.assertFalse((self.home / "merged").exists())
        base.rename(self.home / "gone")
        self.ok("export", "runs/run", "adapter")
        (self.home / "gone").rename(base)
        (base / "model.safetensors").write_bytes(weights)
        self.resumed(run)
        # A run of adapters is no model to start from.
        code, out, err = self.strait("plan", self.write_recipe("next", {"model.weights": "runs/run"}))
        self.assertEqual((code, out, err.count("\n")), (10, "", 1), out + err)
        self.assertRegex(err, "is a run that trained adapters only; .*: strait export runs/run from-run\n")

    def test_runs_outlive_the_checkpoint_that_they_began_with(self):
        first = self.train("first", split(2, GPIPE))
        began = {"model.weights": "runs/first", "checkpoint.every": MIDDLE}
        whole = self.train("whole", {**split(2, GPIPE), **began})
        run = self.train("run", {**split(2, ONE_F_ONE_B), **began, **self.LORA})
        reference = run.learnt(STEPS)
        shutil.rmtree(first.path / "checkpoints")
        for words in (["runs/whole", "exported"], ["runs/run", "adapter"], ["runs/run", "merged", "--merge"]):
            self.ok("export", *words)
            card = (self.home / words[1] / "README.md").read_text()
            self.assertIn(f"weights of the run `first`, step-{STEPS}", card)
            folder = "runs/first/checkpoints" if "whole" in words[0] else "runs"
            self.assertIn(f'weights = "{folder}/step-{STEPS}"', card)
            self.assertNotIn("base_model", card)  # other weights than those that the hub has
        # PEFT must not put the adapter over the weights of model.path.
        adapter = json.loads((self.home / "adapter/adapter_config.json").read_text())
        self.assertEqual(adapter["base_model_name_or_path"], f"model, weights of the run `first`, step-{STEPS}")
        self.damaged_base_is_found(run)
        self.rewind_run(whole, MIDDLE)
        self.resumed(whole, "--set", "pipeline.stages=1")
        # Of a run that was moved, or copied.
        self.ok("checkpoint", "copy", "runs/run", "copy", "--step", str(MIDDLE))
        run.path.rename(self.home / "moved")
        moved = runs.Run(self.home / "moved")
        self.rewind_run(moved, MIDDLE)
        for other in (moved, runs.Run(self.home / "copy")):
            self.resumed(other, "--set", "pipeline.stages=3")
            self.assert_same_bits(reference, other.learnt(STEPS))

    def damaged_base_is_found(self, run):
        shard = next((run.path / f"base/step-{STEPS}").glob("*.weights.safetensors"))
        good = shard.read_bytes()
        shard.write_bytes(good[:-1] + bytes([good[-1] ^ 4]))
        self.assertIn("weights under the adapters: damaged", self.ended(32, "checkpoint", "verify", "runs/run")[0])
        _, err = self.ended(32, "checkpoint", "copy", "runs/run", "broken")
        self.assertIn("adapters of all steps were trained over these weights", err)
        self.assertNotIn("--step", err)  # no other step is better
        self.assertFalse((self.home / "broken").exists())
        shard.write_bytes(good)
        self.assertEqual(self.ok("checkpoint", "verify", "runs/run", "--step", str(STEPS)).count("every byte is right"), 2)
        # Lost while the run was moved.
        (run.path / "base").rename(self.home / "lost")
        run.path.rename(self.home / "moved")
        for words, says in ((("verify", "moved"), "weights under the adapters: damaged"), (("copy", "moved", "broken"), "adapters of all steps")):
            out, err = self.ended(32, "checkpoint", *words)
            self.assertIn(says, out + err)
        (self.home / "moved").rename(run.path)
        (self.home / "lost").rename(run.path / "base")

    def test_export_says_what_it_holds(self):
        model = self.home / "model"
        (model / "tokenizer.json").write_text("{}")
        (model / "generation_config.json").write_text("{}")
        for name in ("LICENSE", "rust_model.ot", "model.onnx_data"):
            (model / name).write_text("of the model before")
        run = self.train("run", {**split(1, GPIPE), "checkpoint.every": MIDDLE})
        losses = {step: values[0] for step, values in run.curve().items()}
        self.rewind_run(run, MIDDLE)
        with open(run.path / "recipe.toml", "a") as recipe:
            recipe.write("# a secret\n")
        out = self.ok("export", "runs/run", "exported")
        names = {path.name for path in (self.home / "exported").iterdir()}
        self.assertEqual(names, {"config.json", "generation_config.json", "LICENSE", "model.safetensors", "README.md"})
        card = (self.home / "exported/README.md").read_text()
        self.assertIn(f"steps | {MIDDLE} of {STEPS}", card)
        row = next(line for line in card.splitlines() if "training loss of the last step" in line)
        self.assertEqual(row.split("|")[2].strip(), f"{losses[MIDDLE]:.6g}")
        self.assertNotIn("secret", card)
        # The run's tokens are bytes, not those of the model's tokenizer.
        self.assertIn("the export has none", out)
        self.assertFalse((self.home / "exported/tokenizer.json").exists())
        self.assertTrue((self.home / "exported/generation_config.json").exists())

    def test_export_holds_no_path_and_a_head_for_the_hub(self):
        base = self.write_model("base", weights=True, _name_or_path="acme/Tiny-1B", architectures=["GPT2LMHeadModel"])
        (base / "README.md").write_text("---\nlicense: apache-2.0\nlanguage:\n- en\n---\n# Tiny\n")
        local = self.write_model("local", weights=True, _name_or_path=str(base))
        short = {**split(1, GPIPE), "train.steps": 2, "checkpoint.every": 0, "model.weights": "load"}
        for name, model in (("known", base), ("unknown", local)):
            self.train(name, {**short, **self.LORA, "model.path": str(model)})
            self.ok("export", f"runs/{name}", f"{name}-adapter")
            self.ok("export", f"runs/{name}", f"{name}-merged", "--merge")
        for folder in self.home.glob("*known-*"):
            for file in folder.iterdir():
                self.assertNotIn(str(self.home).encode(), file.read_bytes(), file)

        def head(folder):
            first, lines, _ = (self.home / folder / "README.md").read_text().split("---\n", 2)
            self.assertEqual(first, "")
            return lines

        tags = "pipeline_tag: text-generation\ntags:\n"
        self.assertEqual(head("known-adapter"), "base_model: acme/Tiny-1B\nlibrary_name: peft\nlicense: apache-2.0\n"
                         f"{tags}- base_model:adapter:acme/Tiny-1B\n- lora\n- strait\n- text-generation\n")
        self.assertEqual(head("known-merged"), "base_model: acme/Tiny-1B\nlibrary_name: transformers\nlicense: apache-2.0\n"
                         f"{tags}- base_model:finetune:acme/Tiny-1B\n- strait\n- text-generation\n")
        self.assertEqual(head("unknown-adapter"), f"library_name: peft\n{tags}- lora\n- strait\n- text-generation\n")
        bases = [json.loads((self.home / f"{name}-adapter/adapter_config.json").read_text())["base_model_name_or_path"]
                 for name in ("known", "unknown")]
        self.assertEqual(bases, ["acme/Tiny-1B", "local"])
        # Gone on with, over the model that it belongs to.
        settings = {**short, "model.path": str(base), "model.adapter": "known-adapter", "train.warmup": 0}
        self.assertEqual(self.strait("plan", self.write_recipe("next", settings))[::2], (0, ""))


class Resume(Compared):
    STEPS = 80  # enough that what is done after the first ones is done in the middle of the run

    def settings(self, **more):
        return split(2, ONE_F_ONE_B, 1, **{"train.steps": self.STEPS, **more})

    def test_resumed_run_matches_bits(self):
        self.reference = self.train("reference", {**self.settings(), **split(1, GPIPE)})
        for end in (self.stop_by_verb, self.interrupt_twice, self.kill_a_stage):
            with self.subTest(end.__name__):
                self.resume(end(end.__name__))

    def test_resumes_with_other_number_of_chunks(self):
        steps, middle = 20, 10
        settings = self.settings(**{"train.steps": steps, "checkpoint.every": middle})
        reference = self.train("reference", {**settings, **split(1, GPIPE)})
        there_and_back = [(INTERLEAVED, ONE_F_ONE_B), (ONE_F_ONE_B, INTERLEAVED)]
        for number, (before, after) in enumerate(there_and_back):
            with self.subTest(before=before, after=after):
                run = self.train(f"run-{number}", {**settings, **split(2, before)})
                self.rewind_run(run, middle)
                self.resumed(run, "--set", f"pipeline.schedule={after}")
                self.same_bits(reference, run, steps)

    def resume(self, run):
        self.assertLess(len(run.metrics()), self.STEPS, "it was over before it was ended")
        self.ok("resume", run.path.relative_to(self.home))
        self.same_bits(self.reference, run, self.STEPS)

    def while_frozen(self, launched, ask):
        """Calls `ask` while a stage is stopped, so that the request comes in the middle of the run."""
        before = len(launched.run.events("stopping"))
        stage = launched.run.stages()[1]
        runs.stop_process(stage)
        try:
            answer = ask()
            launched.wait_for("stopping", lambda: len(launched.run.events("stopping")) > before, seconds=4)
        finally:
            os.kill(stage, signal.SIGCONT)
        return answer

    def stop_by_verb(self, name):
        launched = self.start(name, self.settings())
        launched.at_step(3)
        asked = self.while_frozen(launched, lambda: self.launch("stop", f"runs/{name}"))
        self.assertEqual(asked.end(), 0, asked.output())
        self.assertEqual(launched.end(), 0)
        return launched.run

    def interrupt_twice(self, name):
        launched = self.start(name, self.settings())
        launched.at_step(2)
        self.while_frozen(launched, lambda: launched.signal(signal.SIGINT))
        self.assertEqual(launched.end(), 0)
        first = launched.run.checkpoints()[-1]
        again = self.launch("resume", f"runs/{name}", name=name)
        again.at_step(first + 2)
        self.while_frozen(again, lambda: again.signal(signal.SIGINT))
        self.assertEqual(again.end(), 0)
        return again.run

    def kill_a_stage(self, name):
        launched = self.start(name, self.settings(**{"checkpoint.every": 5}))
        launched.at_event("checkpoint")
        launched.at_step(7)
        os.kill(launched.run.stages()[1], signal.SIGKILL)
        self.assertEqual(launched.end(), 20)
        return launched.run


if __name__ == "__main__":
    runs.main()
