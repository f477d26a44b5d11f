"""Stages that compute on a device other than the CPU: one that stands for a GPU (tests/device), which a
plugin registers with libtorch; and a GPU that is asked for where there is none.
"""

import contextlib
import json
import os
import pathlib
import sys
import unittest.mock

import runs

BUILD = pathlib.Path(os.environ.get("STRAIT_BUILD", runs.ROOT / "build" / "release"))
DEVICE = BUILD / "tests" / "device" / "libtest_device.so"
if not DEVICE.exists():
    print(f"skipped: there is no {DEVICE}; build first, or set STRAIT_BUILD")
    sys.exit(77)


class Devices(runs.RunCase):
    SETTINGS = {
        **runs.RunCase.SETTINGS, "train.steps": 4, "train.micro_batch": 4, "checkpoint.every": 2,
        "data.eval": "train.jsonl",
    }

    def assert_close(self, ours, expected, tolerance):
        self.assertEqual(len(ours), len(expected))
        for step, values in expected.items():
            for got, wanted in zip(ours[step], values):
                self.assertLess(abs(got - wanted), tolerance * abs(wanted), (step, ours, expected))

    def logs(self, run):
        return {path.name[:3]: path.read_text() for path in (run.path / "logs").glob("*.log")}

    def test_device_of_plugin_learns_what_the_cpu_learns(self):
        cpu = self.train("cpu")
        device = {"plugins": [str(DEVICE)]}
        with self.nvidia_driver():
            code, out, err = self.strait("run", self.write_recipe("device", device))
        self.assertEqual(code, 0, out + err)
        run = self.run_of("device")
        self.assert_reports_gpus(run, out)
        self.assert_close(run.curve(), cpu.curve(), 1e-3)
        logs = self.logs(run)
        # Named as libtorch names it; two processes, each on a device of its own.
        for number, process in enumerate(("0.0", "1.0")):
            self.assertRegex(logs[process], rf"computes on \w+:{number}")
            self.assertIn("computes on cpu", self.logs(cpu)[process])
        self.assertIn("computes on cpu", self.logs(self.train("not", {**device, "model.device": "cpu"}))["0.0"])
        # The checkpoint of each, on its own device.
        scores = [json.loads(self.ok("eval", f"runs/{name}", "--json"))["loss"] for name in ("cpu", "device")]
        self.assertLess(abs(scores[0] - scores[1]), 1e-3 * scores[0])

    def test_offloaded_optimizer_has_the_bits_and_files_of_one_on_the_device(self):
        device = {"plugins": [str(DEVICE)], "model.dtype": "bfloat16"}
        plain = self.train("plain", device)
        expected = plain.curve(), plain.state(4)
        offloaded = self.train("offloaded", {**device, "train.offload": "optimizer"})
        self.assert_same_bits(expected, (offloaded.curve(), offloaded.state(4)))
        for run, other in ((plain, "optimizer"), (offloaded, "none")):
            self.rewind_run(run, 2)
            self.resumed(run, "--set", f"train.offload={other}")
            self.assert_same_bits(expected, (run.curve(), run.state(4)))

    def test_activations_in_host_memory_have_the_bits_of_those_on_the_device(self):
        # Eight micro-batches wait in both stages. Logits, at least, are large enough to move.
        device = {"plugins": [str(DEVICE)], "pipeline.schedule": "gpipe", "data.row": 64, "train.batch": 16,
                  "train.micro_batch": 2}
        plain = self.train("plain", device)
        waiting = self.train("waiting", {**device, "model.recompute": "offload"})
        self.assert_same_bits((plain.curve(), plain.state(4)), (waiting.curve(), waiting.state(4)))

    @contextlib.contextmanager
    def nvidia_driver(self):
        """A driver of two GPUs, of which the second has no sensors, for the processes started here."""
        (self.home / "driver").mkdir()
        (self.home / "driver/libnvidia-ml.so.1").symlink_to(BUILD / "tests/libnvidia_ml.so")
        with unittest.mock.patch.dict(os.environ, LD_LIBRARY_PATH=str(self.home / "driver")):
            yield

    def assert_reports_gpus(self, run, out):
        last = run.metrics()[-1]
        self.assertEqual(last["gpu_busy"], {"0.0": 0.97, "1.0": 0})
        self.assertEqual(last["gpu_celsius"], {"0.0": 41, "1.0": 0})
        # Only the first has a name that is known; the simulated device is a slow L4.
        self.assertAlmostEqual(last["mfu"]["0.0"], last["tflops"]["0.0"] / 30.3)
        self.assertGreater(last["tflops"]["1.0"], 0)
        self.assertIsNone(last["mfu"]["1.0"])
        for process in ("0.0", "1.0"):
            planned = next(p for p in run.plan()["processes"] if p["name"] == process)
            planned = planned["state_bytes"] + planned["activation_bytes"]
            # Whole pages of small tensors, and what a few operators make beside what is kept.
            self.assertGreater(last["gpu_memory_bytes"][process], 0.5 * planned)
            self.assertLess(last["gpu_memory_bytes"][process], 5 * planned)
            self.assertLess(last["program_bytes"][process], last["memory_bytes"][process])
        self.assertRegex(out, r"memory +0\.0 \S+ [kM]B of \S+ [kM]B planned on its GPU, 1\.0 ")
        self.assertRegex(out, r"step 4/4 .* GPU 4[89] %")  # the mean of both

    def test_plan_gives_stages_to_gpus_and_refuses_what_does_not_fit(self):
        small = (640 << 20) + 100_000  # what CUDA takes for itself, and little else
        (self.home / "speeds.toml").write_text(f'[[hosts]]\nname = "a"\ngpu_memory = [{small}, 80_000_000_000]\n'
                                               '[[hosts]]\nname = "b"\ngpu_memory = []\n')
        hosts = {"hosts.backend": "ssh", "hosts.list": ["a", "b", "c"], "hosts.links": "speeds.toml"}
        many = {**hosts, "pipeline.stages": 4}  # two on a
        recipe = self.write_recipe("gpus", many)
        _, err = self.ended(10, "plan", recipe)
        self.assertRegex(err, r"over memory: with stage 0 .* on GPU 0 of a need .* of its 0\.67\d* GB")
        (self.home / "speeds.toml").write_text(
            (self.home / "speeds.toml").read_text().replace(str(small), "24_000_000_000")
        )
        out = self.ok("plan", recipe)
        for line in (r"0\.0 +a +cuda:0 ", r"1\.0 +a +cuda:1 ", r"2\.0 +b +cpu ", r"3\.0 +c +auto "):
            self.assertRegex(out, line)
        self.assertRegex(out, r"GPU 1 of a: \S+ [kM]B of its 80\.00 GB")
        self.assertNotIn("cuda", self.ok("plan", recipe, "--set", 'model.device="cpu"'))

    def test_micro_batches_that_the_plan_chooses_fit_their_gpus(self):
        def plan_with(bytes_of_gpu, micro_batch):
            (self.home / "speeds.toml").write_text(
                "".join(f'[[hosts]]\nname = "{name}"\ngpu_memory = [{bytes_of_gpu}]\n' for name in "ab")
            )
            return json.loads(self.ok("plan", recipe, "--json", "--set", f"train.micro_batch={micro_batch}"))

        recipe = self.write_recipe("gpus", {
            "hosts.backend": "ssh", "hosts.list": [{"name": name, "tflops": 0.02} for name in "ab"],
            "hosts.links": "speeds.toml", "train.batch": 16})
        # A GPU is busy with many tokens only, so passes of few rows are not worth it.
        self.assertLess(plan_with(80_000_000_000, "auto")["micro_batches"], 4)
        two = plan_with(80_000_000_000, 2)
        needed = max(one["state_bytes"] + one["activation_bytes"] for one in two["processes"])
        self.assertEqual(plan_with((640 << 20) + needed, "auto")["micro_batches"], 8)

    def test_gpu_that_is_not_there_is_named(self):
        code, _, err = self.strait("run", self.write_recipe("cuda", {"model.device": "cuda"}))
        if "libtorch for CPUs" not in err:
            self.skipTest("this build's libtorch has CUDA")
        self.assertEqual(code, 10, err)
        self.assertIn("model.device", err)

    def test_part_of_libtorch_for_gpus_is_loaded_if_it_is_there(self):
        def doctor(folder):
            with unittest.mock.patch.dict(os.environ, LD_LIBRARY_PATH=str(folder)):
                return self.strait("doctor")[:2]

        code, out = doctor(self.home)
        if "for CPUs" not in out:
            self.skipTest("this libtorch has CUDA")
        self.assertEqual(code, 0, out)
        code, out = doctor(runs.BIN.parent / "tests/cuda_build/bin")
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r"libtorch \S+ with CUDA, in ")
        (self.home / "libtorch_cuda.so").write_text("half of a download")
        code, out = doctor(self.home)
        self.assertEqual(code, 70, out)
        self.assertIn("cannot load its part for GPUs", out)


if __name__ == "__main__":
    runs.main()
