"""Parts of a user's own: the worked examples, built in a clean directory with nothing but the
installed package and run over two stages; and plugins that have to be refused."""

import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys

import runs

BUILD = pathlib.Path(os.environ.get("STRAIT_BUILD", runs.ROOT / "build" / "release"))
SCRATCH = BUILD / "plugins test"  # with a space, as users have them
PREFIX = SCRATCH / "prefix"


def command(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def torch_folder():
    for line in (BUILD / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("Torch_DIR:"):
            return line.partition("=")[2]
    return ""


def build(source):
    """As a user does. Returns where."""
    built = SCRATCH / "built" / source.name
    command("cmake", "-G", "Ninja", "-S", source, "-B", built, f"-DCMAKE_PREFIX_PATH={PREFIX}",
            f"-DTorch_DIR={torch_folder()}")
    command("cmake", "--build", built)
    return built


def setUpModule():
    """Installs strait and builds copies of the sources outside of the tree. What links all of strait is a project by
    itself, as its page says; to configure one finds torch, which takes longer than to compile it, so the others are
    folders of one project."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    command("cmake", "--install", BUILD, "--prefix", PREFIX)
    sources, plugins = SCRATCH / "sources", SCRATCH / "plugins"
    shutil.copytree(runs.ROOT / "recipes" / "plugins", sources)
    shutil.copytree(runs.ROOT / "tests" / "processes" / "wrong_plugins", sources / "wrong")
    plugins.mkdir()
    (plugins / "program").symlink_to(build(sources / "program"))
    folders = [file.parent.name for file in sources.glob("*/CMakeLists.txt") if file.parent.name != "program"]
    (sources / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(plugins LANGUAGES CXX)\n"
        + "".join(f"add_subdirectory({name})\n" for name in folders))
    built = build(sources)
    for name in folders:
        (plugins / name).symlink_to(built / name)


class PluginCase(runs.RunCase):
    def setUp(self):
        super().setUp()
        self.program = PREFIX / "bin" / "strait"
        (self.home / "recipes").symlink_to(runs.ROOT / "recipes")
        (self.home / "build").mkdir()
        (self.home / "build" / "plugins").symlink_to(SCRATCH / "plugins")

    def plan(self, *words):
        out = self.ok("plan", "--json", *words)
        return json.loads(out)

    def refusal(self, recipe, *words, code=10):
        _, err = self.ended(code, "plan", recipe, *words)
        self.assertEqual(err.count("\n"), 1, "one sentence")
        return err

    def run_example(self, name, *words, recipe="recipe.toml"):
        """Trains an example to the end and returns its run."""
        recipe = f"recipes/plugins/{name}/{recipe}"
        self.ok("run", recipe, *words)
        run = self.run_of(next((self.home / "runs").iterdir()).name)
        steps = run.plan()["steps"]
        metrics = run.metrics()
        self.assertEqual(metrics[-1]["step"], steps - 1 if metrics[0]["step"] == 0 else steps)
        losses = [m["loss"] for m in metrics]
        self.assertTrue(all(math.isfinite(loss) for loss in losses))
        self.assertLess(losses[-1], losses[0])
        return run


class Partition(PluginCase):
    RECIPE = "recipes/plugins/partition/recipe.toml"

    def chunks(self, plan):
        return [process["chunks"] for process in plan["processes"]]

    def test_example_partition_trains(self):
        run = self.run_example("partition")
        # The first stage holds more micro-batches than the last one: balanced cuts elsewhere.
        balanced = self.plan(self.RECIPE, "--set", "pipeline.partition=balanced")
        self.assertNotEqual(self.chunks(run.plan()), self.chunks(balanced))
        state = lambda plan: max(p["state_bytes"] + p["activation_bytes"] for p in plan["processes"])
        self.assertLess(state(run.plan()), state(balanced))

    def test_resumes_with_plugin(self):
        run = self.run_example("partition", "--set", "checkpoint.every=10")
        planned = run.plan()
        shutil.rmtree(run.path / "checkpoints" / "step-20")
        # Planned anew where something is changed.
        self.resumed(run, "--set", "checkpoint.every=7")
        self.assertEqual(self.chunks(run.plan()), self.chunks(planned))
        self.assertEqual(run.checkpoints()[-1], 20)

    def test_partition_with_several_chunks(self):
        run = self.run_example("partition", "--set", "pipeline.threads=1", recipe="chunks.toml")
        chunks = self.chunks(run.plan())
        self.assertEqual([len(of_stage) for of_stage in chunks], [2, 2])
        passed = [chunks[place % 2][place // 2] for place in range(4)]
        self.assertEqual([place[0] for place in passed], [0] + [place[1] + 1 for place in passed[:-1]])
        recipe = "recipes/plugins/partition/chunks.toml"
        # Where the head weighs much, the two cut in different places.
        self.write_model("wordy", n_layer=8, vocab_size=2000, n_positions=128)
        even = self.plan(recipe, "--set", "model.path=wordy")
        balanced = self.plan(recipe, "--set", "model.path=wordy", "--set", "pipeline.partition=balanced")
        self.assertNotEqual(self.chunks(even), self.chunks(balanced))
        # However it is cut: the bits of one stage.
        whole = self.home / "whole.toml"
        whole.write_text((runs.ROOT / recipe).read_text())
        sets = ["pipeline.stages=1", "pipeline.chunks=1", "pipeline.partition=balanced"]
        sets += ["pipeline.threads=1", "name=whole"]
        self.ok("run", whole, *(word for one in sets for word in ("--set", one)))
        self.assertEqual(run.curve(), self.run_of("whole").curve())
        # As many as the recipe says, in whatever schedule runs them.
        three = self.plan(recipe, "--set", "pipeline.chunks=3")
        self.assertEqual([len(of_stage) for of_stage in self.chunks(three)], [3, 3])
        said = self.refusal(recipe, "--set", "pipeline.schedule=1f1b")
        self.assertIn('"1f1b" runs one chunk a stage, not 2; "interleaved" runs several', said)


class OtherParts(PluginCase):
    def test_schedule_sets_stage_memory(self):
        run = self.run_example("schedule")
        self.assertEqual([p["in_flight"] for p in run.plan()["processes"]], [2, 2])
        _, text, _ = self.strait("plan", "recipes/plugins/schedule/recipe.toml")
        self.assertIn("schedule waves, depth", text)
        # The promise of every list: the same bits in whatever order the stages work.
        usual = self.home / "usual.toml"
        usual.write_text(pathlib.Path("recipes/plugins/schedule/recipe.toml").read_text())
        self.ok("run", usual, "--set", "pipeline.schedule=1f1b", "--set", "name=usual")
        self.assertEqual(run.curve(), self.run_of("usual").curve())

    def test_codec_sets_sent_bytes(self):
        run = self.run_example("codec")
        crossed = run.metrics()[-1]["boundaries"]
        self.assertEqual([one["direction"] for one in crossed], ["forward", "backward"])
        for one in crossed:
            # A byte a value and four a token, of 96 values of four bytes; and the heads.
            self.assertAlmostEqual(one["sent_bytes"] / one["raw_bytes"], 100 / 384, 2)

    def test_sync_method_sets_sent_bytes(self):
        run = self.run_example("sync")
        plan = run.plan()
        self.assertEqual(plan["sync_method"], "averaging")
        sent = [m["bytes_sync"] for m in run.metrics()]
        rounds = [i for i, n in enumerate(sent) if n > 10 * min(sent)]
        self.assertEqual(len(rounds), 4, sent)
        # A method's keys are its own.
        recipe = "recipes/plugins/sync/recipe.toml"
        said = self.refusal(recipe, "--set", "sync.rank=3")
        self.assertIn('sync.method "averaging" does not read it; it reads every', said)

    def test_sync_method_is_forecast_and_checked_like_the_built_in_ones(self):
        recipe = "recipes/plugins/sync/recipe.toml"
        offers = {one["method"]: one for one in self.plan(recipe)["sync_offers"]}
        averaging = offers["averaging"]
        # Every 5 updates, so an update is 2 steps old on average; a round of float32 like diloco's.
        self.assertEqual(averaging["staleness"], 2)
        self.assertAlmostEqual(averaging["step_bytes"] / averaging["round_bytes"], 1 / 5, 3)
        self.assertAlmostEqual(averaging["round_bytes"] / offers["diloco"]["round_bytes"], 1, 2)
        self.assertRegex(self.ok("plan", recipe), r"\n  \* averaging  .*  2 ")
        # "auto" compares it with the others, with its default settings.
        automatic = self.home / "automatic.toml"
        text = pathlib.Path(recipe).read_text().replace('"averaging"\nevery = 5', '"auto"')
        automatic.write_text(text)
        automatic = self.plan(automatic)
        self.assertIn("averaging", [one["method"] for one in automatic["sync_offers"]])
        # Its own check of its settings.
        said = self.refusal(recipe, "--set", "sync.every=1")
        self.assertIn("sync.every is 1 (--set sync.every=1), but averaging after every update", said)

    def test_model_family_trains_and_generates(self):
        run = self.run_example("model")
        names = run.state(20)
        self.assertIn("pebble.blocks.3.up.weight", names)
        self.ok("generate", run.path, "--prompt", "5 March", "--max-tokens", "3")
        said = self.refusal("recipes/plugins/schedule/recipe.toml", "--set", "model.path=recipes/plugins/model/pebble")
        self.assertIn('model_type', said)

    def test_custom_program_with_linked_parts(self):
        self.program = self.home / "build" / "plugins" / "program" / "my-strait"
        run = self.run_example("program")
        self.assertEqual([p["chunks"] for p in run.plan()["processes"]], [[[0, 0]], [[1, 5]]])
        self.program = PREFIX / "bin" / "strait"
        said = self.refusal("recipes/plugins/program/recipe.toml")
        self.assertIn('this program has no partition "last_takes_most"; it has balanced', said)

    def test_unknown_name_lists_names_of_plugins(self):
        recipe = "recipes/plugins/schedule/recipe.toml"
        said = self.refusal(recipe, "--set", "pipeline.schedule=wave")
        self.assertIn('must be one of "gpipe", "1f1b", "zero_bubble", "interleaved", "waves", "auto"; did you mean "waves"?', said)
        said = self.refusal(recipe, "--set", "plugins=[]", "--set", "pipeline.schedule=gpipe")
        self.assertIn("plugins is []", said)


class Wrong(PluginCase):
    RECIPE = "recipes/plugins/partition/recipe.toml"

    def answer(self, name, *words):
        where = f"plugin:build/plugins/wrong/libwrong_answers.so#{name}"
        return self.refusal(self.RECIPE, "--set", f"pipeline.partition={where}", *words)

    def test_refuses_invalid_partitions(self):
        for name, reason in {
            "missing": "gives layer 3 (block 2) to no stage",
            "twice": "gives layer 3 (block 2) twice, to stage 0 and to stage 1",
            "out_of_order": "is out of order: stage 1 begins with layer 0 (embedding)", "empty": "leaves stage 1 empty",
            "chunks": "gives stage 0 2 chunks, but pipeline.chunks is 1", "stranger": "puts stage 1 on host 7",
            "throws": "failed: the stars are not right",
        }.items():
            said = self.answer(name)
            self.assertIn(f'"{name}" of build/plugins/wrong/libwrong_answers.so', said)
            self.assertIn(reason, said)

    def test_refuses_replicas_with_different_layers(self):
        said = self.answer("by_replica", "--set", "pipeline.replicas=2")
        self.assertIn("assigns stage 0 of replica 1 other layers", said)

    def test_refuses_plan_beyond_memory(self):
        self.write_model("huge", n_embd=1 << 16, n_head=2, n_positions=128)
        said = self.answer("too_large", "--set", "model.path=huge")
        self.assertIn("is over memory", said)

    def test_several_partitions_need_name(self):
        where = "plugin:build/plugins/wrong/libwrong_answers.so"
        said = self.refusal(self.RECIPE, "--set", f"pipeline.partition={where}")
        self.assertIn("has the partitions missing, twice,", said)
        said = self.refusal(self.RECIPE, "--set", f"pipeline.partition={where}#none")
        self.assertIn("has the partitions missing, twice,", said)

    def refused(self, library, code=10):
        where = f"plugin:build/plugins/wrong/lib{library}.so"
        return self.refusal(self.RECIPE, "--set", f"pipeline.partition={where}", code=code)

    def test_refuses_other_abi(self):
        said = self.refused("other_abi", code=11)
        self.assertIn("has plugin ABI version 4000000000", said)
        header = (runs.ROOT / "launcher/plugin/plugin.h").read_text()
        version = re.search(r"#define STRAIT_PLUGIN_ABI (\d+)", header)[1]
        self.assertRegex(said, rf"this strait \(0\.1\.0-\w+\) has version {version};")
        said = self.refused("other_library", code=11)
        self.assertIn("was built with libstdc++ in debug mode", said)

    def test_refuses_files_that_are_no_plugins(self):
        self.assertIn("is a shared object but no plugin of strait", self.refused("no_plugin"))
        self.assertIn("there is no plugin", self.refused("nowhere"))
        (self.home / "text.so").write_text("not a shared object")
        said = self.refusal(self.RECIPE, "--set", "pipeline.partition=plugin:text.so")
        self.assertIn("cannot be loaded", said)

    def test_refuses_invalid_schedules(self):
        recipe = "recipes/plugins/schedule/recipe.toml"
        plugins = 'plugins=["build/plugins/wrong/libwrong_schedules.so"]'
        said = self.refusal(recipe, "--set", plugins, "--set", "pipeline.schedule=stuck")
        self.assertIn('"stuck" deadlocks: stage 0 stops before backward 0', said)
        said = self.refusal(recipe, "--set", plugins, "--set", "pipeline.schedule=forgetful")
        self.assertIn('"forgetful": stage 0 ends after 8 forwards and 0 backwards of 8', said)

    def test_diverged_replicas_end_run(self):
        words = ["plugins=['build/plugins/wrong/libforking.so']", "sync.method=forking", "sync.every=2"]
        for on_loss in ("stop", "continue"):  # going on among the others would keep one of two models
            settings = [*words, f"sync.on_loss={on_loss}", f"name={on_loss}"]
            overrides = [word for one in settings for word in ("--set", one)]
            out, err = self.ended(11, "run", "recipes/plugins/sync/recipe.toml", *overrides)
            forked = r"replicas \d and \d hold different bits of [\w.]+(, [\w.]+)* before step \d+"
            self.assertRegex(out + err, forked)
            self.assertIn("their states have forked; resume from the last checkpoint", out + err)

    def test_refuses_taken_name(self):
        self.assertIn('there is a partition called "balanced" already', self.refused("taken_name"))


if __name__ == "__main__":
    runs.main()
