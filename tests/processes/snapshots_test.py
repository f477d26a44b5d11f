"""Checkpoints that are written while training goes on, on a disk that is slower than the steps: training has
moved on before they are complete, and whatever happens then, bits stay the same.
"""

import os
import signal
import subprocess

import runs

STEPS = 20
MIDDLE = 10
DELTA = {"codec.forward": "delta", "codec.backward": "fixed"}
COCKTAIL = {"pipeline.replicas": 2, "sync.method": "cocktail", "sync.random": 0.3, "sync.top": 0.5}
ADAPTERS = {"model.lora.rank": 4, "model.lora.targets": ["c_attn", "c_fc"]}

# Every write to a file of a checkpoint takes STRAIT_TEST_WRITE_SECONDS longer.
SLOW_DISK = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

ssize_t write(int file, const void* bytes, size_t count) {
  char link[64], path[4096] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  const char* seconds = getenv("STRAIT_TEST_WRITE_SECONDS");
  if (length > 0 && seconds != NULL && strstr(path, "/checkpoints/step-") != NULL) {
    struct timespec pause = {0, (long)(atof(seconds) * 1e9)};
    nanosleep(&pause, NULL);
  }
  return syscall(SYS_write, file, bytes, count);
}
"""


class BesideTraining(runs.RunCase):
    SETTINGS = {**runs.RunCase.SETTINGS, "train.steps": STEPS, "checkpoint.every": MIDDLE, **DELTA}

    def setUp(self):
        super().setUp()
        source = self.home / "slow_disk.c"
        source.write_text(SLOW_DISK)
        self.shim = self.home / "slow_disk.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.shim, source], check=True)

    def start_slow(self, name, settings, seconds):
        environment = {**os.environ, "LD_PRELOAD": str(self.shim), "STRAIT_TEST_WRITE_SECONDS": str(seconds)}
        return self.start(name, settings, env=environment)

    def assert_resumes_to(self, expected, run, step):
        self.rewind_run(run, step)
        self.resumed(run)
        self.assert_same_bits(expected, run.learnt(STEPS))

    def test_slow_disk_and_resume_change_no_bits(self):
        cases = {
            "delta": {}, "narrow": {"model.dtype": "bfloat16", "checkpoint.memory": "1KiB"},
            "adapters": {**ADAPTERS, "checkpoint.memory": "20KiB"},
            "replicas": {**COCKTAIL, "checkpoint.memory": "40KiB"},
        }
        for name, settings in cases.items():
            with self.subTest(name):
                expected = self.train(name, {**settings, "checkpoint.every": 0}).learnt(STEPS)
                launched = self.start_slow(f"{name}-slow", settings, 0.002)
                self.assertEqual(launched.end(), 0, launched.output())
                run = launched.run
                self.assert_same_bits(expected, run.learnt(STEPS))
                waited = {m["step"]: m["checkpoint_seconds"] for m in run.metrics()}
                # The step after the checkpoint, and others if caches waited longer.
                self.assertEqual(min(step for step in waited if waited[step] > 0), MIDDLE + 1)
                self.assert_resumes_to(expected, run, MIDDLE)

    def test_stage_killed_while_it_writes_leaves_former_checkpoint(self):
        expected = self.train("whole", {"train.steps": STEPS, "checkpoint.every": 0}).learnt(STEPS)
        every = {"checkpoint.every": 5}
        launched = self.start_slow("killed", every, 0.02)
        launched.at_step(11)  # the second one is being written
        self.assertEqual(launched.run.checkpoints(), [5])
        os.kill(launched.run.stages()[1], signal.SIGKILL)
        self.assertEqual(launched.end(), 20, launched.output())
        self.assertEqual(launched.run.checkpoints(), [5])
        self.resumed(launched.run)
        self.assert_same_bits(expected, launched.run.learnt(STEPS))


if __name__ == "__main__":
    runs.main()
