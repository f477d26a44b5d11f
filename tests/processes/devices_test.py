"""Stages that compute on a device other than the CPU: one that stands for a GPU (tests/device), which a
plugin registers with libtorch; and a GPU that is asked for where there is none.
"""

import json
import os
import pathlib
import sys

import runs

BUILD = pathlib.Path(os.environ.get("STRAIT_BUILD", runs.ROOT / "build" / "release"))
DEVICE = BUILD / "tests" / "device" / "libtest_device.so"
if not DEVICE.exists():
    print(f"skipped: there is no {DEVICE}; build first, or set STRAIT_BUILD")
    sys.exit(77)


class Devices(runs.RunCase):
    SETTINGS = {
        **runs.RunCase.SETTINGS,
        "train.steps": 4,
        "train.micro_batch": 4,
        "checkpoint.every": 2,
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
        run = self.train("device", device)
        self.assert_close(run.curve(), cpu.curve(), 1e-3)
        logs = self.logs(run)
        # Named as libtorch names it; two processes, each on a device of its own.
        for number, process in enumerate(("0.0", "1.0")):
            self.assertRegex(logs[process], rf"computes on \w+:{number}")
            self.assertIn("computes on cpu", self.logs(cpu)[process])
        self.assertIn("computes on cpu", self.logs(self.train("not", {**device, "model.device": "cpu"}))["0.0"])
        # The checkpoint of each, on its own device.
        scores = [
            json.loads(self.answer("eval", f"runs/{name}", "--json"))["loss"] for name in ("cpu", "device")
        ]
        self.assertLess(abs(scores[0] - scores[1]), 1e-3 * scores[0])

    def answer(self, *words):
        code, out, err = self.strait(*words)
        self.assertEqual(code, 0, out + err)
        return out

    def test_gpu_that_is_not_there_is_named(self):
        code, _, err = self.strait("run", self.write_recipe("cuda", {"model.device": "cuda"}))
        if "libtorch for CPUs" not in err:
            self.skipTest("this build's libtorch has CUDA")
        self.assertEqual(code, 10, err)
        self.assertIn("model.device", err)


if __name__ == "__main__":
    runs.main()
