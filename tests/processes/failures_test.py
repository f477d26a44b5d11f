"""Failures of a run: when a process ends or hangs, or the run is stopped, all processes end in time and
the root cause is reported.

Runs here would last minutes; whatever ends them comes from the test. Random moments print their
seed; STRAIT_TEST_SEED repeats one.
"""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

import runs

SOON = 10  # seconds within which every process must have gone


class Failures(runs.RunCase):
    ENDLESS = {"pipeline.stages": 3, "train.steps": 100_000, "checkpoint.every": 5}

    def endless(self, name="endless", *, step=1, **more):
        launched = self.start(name, {**self.ENDLESS, **more})
        launched.at_step(step)
        return launched

    def end_soon(self, launched):
        """Returns the exit code; checks that all processes end in time."""
        code = launched.end(SOON)
        self.wait_for_no_processes(1)
        return code

    def assert_says(self, text, *words):
        for word in words:
            self.assertRegex(text, word)

    def assert_names(self, launched, stage, *words):
        """Checks the root cause, on the terminal and in the files."""
        outcome, output = launched.run.outcome(), launched.output()
        host = os.uname().nodename
        self.assertEqual(outcome["culprit"], f"{stage}.0", outcome)
        self.assertEqual(outcome["host"], host)
        self.assert_says(outcome["cause"], rf"^stage {stage}\.0 \(.*{re.escape(host)}", *words)
        self.assertIn(outcome["cause"], output)
        self.assertGreaterEqual(len(outcome["log_tail"]), 1)
        for line in outcome["log_tail"]:
            self.assertIn(line, output)
        self.assertLessEqual(len(outcome["log_tail"]), 20)
        self.assertEqual(launched.run.status()["state"], "ended")

    def test_stage_killed_at_random_moment_is_root_cause(self):
        seed = int(os.environ.get("STRAIT_TEST_SEED", time.time_ns() % 1_000_000))
        print(f"seed {seed}")
        chance = random.Random(seed)
        for round_ in range(3):
            with self.subTest(seed=seed, round=round_):
                launched = self.endless(f"killed-{round_}", step=chance.randrange(1, 12))
                stage = chance.randrange(3)
                os.kill(launched.run.stages()[stage], signal.SIGKILL)
                self.assertEqual(self.end_soon(launched), 20)
                self.assert_names(launched, stage, r"signal 9")
                if launched.run.checkpoints():
                    self.assert_says(launched.output(), r"strait resume runs/killed")

    def test_run_with_moved_directory_ends(self):
        """It would save nothing that a resume finds."""
        launched = self.endless("moved", **{"hosts.restart": 3, "checkpoint.every": 0, "checkpoint.memory_every": 1})
        launched.run.path.rename(self.home / "runs" / "aside")
        self.assertEqual(self.end_soon(launched), 31)
        self.assert_says(launched.output(), "directory or its lock file was moved or removed")
        self.assertEqual(os.listdir(self.home / "runs"), ["aside"])
        self.assertNotIn("restarting", launched.output())

    def test_stage_killed_during_start_ends_run(self):
        launched = self.start("early", self.ENDLESS)
        launched.at_event("connected")
        stage, pid = next(iter(launched.run.stages().items()))
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(self.end_soon(launched), 20)
        self.assert_names(launched, stage, "signal 9")

    def test_standstill_says_who_waits_for_whom(self):
        cuts = {"hosts.simulate.cut_every": "3s", "hosts.simulate.cut_for": "14s"}
        launched = self.endless(**cuts)
        launched.at_event("standstill")
        run = launched.run
        still = run.events("standstill")[0]
        self.assertIn("nothing moves: " + still["text"], self.strait("status", run.path)[1])
        last = run.metrics()[-1]["step"]
        launched.at_event("moving")
        launched.at_step(last + 1)
        launched.end_by(signal.SIGTERM, 0)
        print(still["text"])
        self.assert_says(still["text"], r"^stage \d\.0: no progress for \d+ s", "waits for stage", "the link is down")
        self.assert_says(launched.output(), "nothing moves: stage", "the run moves again")

    def test_hanging_stage_ends_run(self):
        launched = self.endless()
        runs.stop_process(launched.run.stages()[1])
        self.assertEqual(self.end_soon(launched), 21)
        self.assert_names(launched, 1, r"\d s")

    def test_killed_launcher_ends_stages(self):
        launched = self.endless()
        launched.at_event("checkpoint")
        launched.signal(signal.SIGKILL)
        launched.end(SOON)
        self.wait_for_no_processes(SOON)
        # What is left is no live run: it can be looked at and gone on with.
        out = self.ok("status", "runs/endless")
        self.assert_says(out, "launcher is gone", "strait resume runs/endless")
        self.ended(10, "stop", "runs/endless")
        again = self.launch("resume", "runs/endless", name="endless")
        again.at_step(launched.run.metrics()[-1]["step"] + 2)
        again.end_by(signal.SIGTERM, 0)

    def test_killed_launcher_and_stage_leave_no_process(self):
        launched = self.endless()
        os.kill(launched.run.stages()[0], signal.SIGKILL)
        launched.signal(signal.SIGKILL)
        launched.end(SOON)
        self.wait_for_no_processes(SOON)

    def test_resume_ends_what_a_killed_launcher_left(self):
        launched = self.endless()
        launched.at_event("checkpoint")
        left = launched.run.stages()[1]
        runs.stop_process(left)  # it cannot see that its launcher is gone
        launched.signal(signal.SIGKILL)
        launched.end(SOON)
        self.assertTrue(runs.alive(left))
        again = self.launch("resume", "runs/endless", name="endless")
        again.at_training()
        self.assertFalse(runs.alive(left))
        self.assertRegex(again.output(), rf"ended process {left} \(1\.0\) of generation 1 on ")
        self.assertEqual(len(self.run_processes()), 1 + 3)
        again.end_by(signal.SIGTERM, 0)

    def test_ctrl_c_once_saves_and_prints_resume_command(self):
        launched = self.endless(**{"checkpoint.every": 0})
        launched.signal(signal.SIGINT)
        self.assertEqual(self.end_soon(launched), 0)
        outcome = launched.run.outcome()
        self.assertTrue(outcome["stopped"])
        self.assertEqual(outcome["checkpoint"], outcome["step"])
        self.assertEqual(launched.run.checkpoints(), [outcome["step"]])
        self.assertEqual(launched.run.metrics()[-1]["step"], outcome["step"])
        self.assert_says(launched.output(), "resume .*strait resume runs/endless")

    def test_ctrl_c_twice_exits_immediately(self):
        launched = self.endless(**{"checkpoint.every": 0})
        # Stage 1 cannot finish its step: only the second Ctrl-C can end this.
        runs.stop_process(launched.run.stages()[1])
        launched.signal(signal.SIGINT)
        launched.at_event("stopping")
        launched.signal(signal.SIGINT)
        self.assertEqual(self.end_soon(launched), 130)
        self.assertEqual(launched.run.checkpoints(), [])
        self.assert_says(launched.output(), r"again .*strait run runs/endless/recipe.toml --replace .*no checkpoint")

    def test_ctrl_c_before_training_exits_immediately(self):
        launched = self.start("early", self.ENDLESS)
        launched.at_event("started")
        launched.signal(signal.SIGINT)
        self.assertEqual(self.end_soon(launched), 130)

    @staticmethod
    def handles(how, launched, number):
        """Whether a process catches (SigCgt) or ignores (SigIgn) a signal."""
        try:
            status = pathlib.Path(f"/proc/{launched.process.pid}/status").read_text()
        except OSError:
            return False
        signals = int(next(line for line in status.splitlines() if line.startswith(how)).split()[1], 16)
        return bool(signals & 1 << (number - 1))

    def stopped_while_it_loads(self, run):
        """A resume that has been suspended before main(): there it counts stops, and ignores one signal more."""
        for _ in range(50):
            launched = self.launch("resume", f"runs/{run.path.name}", "--set", "train.steps=100000")
            launched.wait_for("it to catch Ctrl-C", lambda: self.handles("SigCgt", launched, signal.SIGINT))
            runs.stop_process(launched.process.pid)
            if not self.handles("SigIgn", launched, signal.SIGXFSZ):
                return launched
            launched.signal(signal.SIGKILL)
            launched.end()
        self.fail("it catches Ctrl-C only when it launches the run")

    def test_stop_before_a_resume_has_begun_prints_a_line(self):
        run = self.train("early", {"train.steps": 4})
        before = sorted(path.name for path in run.path.iterdir())
        # As a shell expects it, which then ends its script. That of `strait stop` is no signal to the script.
        for number, code in ((signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGUSR2, 130)):
            launched = self.stopped_while_it_loads(run)
            launched.signal(number)
            launched.signal(signal.SIGCONT)
            self.assertEqual(launched.end(), code)
            self.assertRegex(launched.output(), r"\A(.*\n)*strait: interrupted[^\n]*\n\Z")
        self.assertEqual(sorted(path.name for path in run.path.iterdir()), before)

    def test_stop_while_a_run_is_planned_prints_a_line(self):
        (self.home / "model/tokenizer.json").write_text("{}")
        python = self.home / "python"
        python.write_text("#!/bin/sh\ntouch called\ncat > /dev/null\n")
        python.chmod(0o755)
        recipe = self.write_recipe("early", {"data.tokenizer": "model"})
        launched = self.launch("run", recipe, env={**os.environ, "STRAIT_PYTHON": str(python)})
        launched.wait_for("the tokenizer to be asked", (self.home / "called").exists)
        launched.signal(signal.SIGINT)
        self.assertEqual(launched.end(), -signal.SIGINT)
        self.assertEqual(launched.output(), "strait: interrupted before any process was started; the same command starts again\n")
        self.assertFalse((self.home / "runs").exists())
        self.wait_for_no_processes()  # the tokenizer sees the end of its input

    @staticmethod
    def lock_pid(run):
        try:
            return json.loads((run.path / "lock").read_text())["pid"]
        except (OSError, ValueError):
            return None

    def test_strait_stop_while_a_resume_chooses_its_checkpoint_is_not_silent(self):
        run = self.train("asked", {"train.steps": 4})
        for _ in range(50):
            launched = self.launch("resume", "runs/asked", "--set", "train.steps=100000")
            launched.wait_for("its lock", lambda: self.lock_pid(run) == launched.process.pid)
            runs.stop_process(launched.process.pid)
            if not self.handles("SigIgn", launched, signal.SIGXFSZ):
                break
            launched.signal(signal.SIGKILL)
            launched.end()
        else:
            self.fail("it takes the run's lock only when it launches the run")
        launched.signal(signal.SIGUSR2)  # of `strait stop`
        launched.signal(signal.SIGCONT)
        self.assertEqual(launched.end(), 130, launched.output())
        self.assertIn("strait: interrupted before any process was started; the same command starts again\n",
                      launched.output())
        self.wait_for_no_processes()

    def test_run_survives_closed_terminal(self):
        launched = self.endless()
        launched.signal(signal.SIGHUP)
        launched.at_step(launched.run.metrics()[-1]["step"] + 5)
        launched.signal(signal.SIGTERM)
        self.assertEqual(self.end_soon(launched), 0)

    def test_suspended_launcher_continues(self):
        launched = self.endless()
        launched.signal(signal.SIGSTOP)
        # Longer than a connection is believed to be alive without a sign.
        with self.assertRaises(subprocess.TimeoutExpired):
            launched.process.wait(6)
        launched.signal(signal.SIGCONT)
        launched.at_step(launched.run.metrics()[-1]["step"] + 20)
        launched.signal(signal.SIGTERM)
        self.assertEqual(self.end_soon(launched), 0, launched.output())

    def test_closed_streams_are_no_files_of_ours(self):
        """Started by a program that has closed them: else the first files that are opened are stdout and stderr."""
        recipe = self.write_recipe("run", {"train.steps": 4})
        for words in (["prepare", "train.jsonl", "tokens.safetensors", "--row", "32"], ["run", recipe]):
            shell = ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', self.program, *words]
            done = subprocess.run(shell, cwd=self.home, timeout=runs.scaled_timeout(runs.TIMEOUT))
            self.assertEqual(done.returncode, 0, words)
        self.ok("prepare", "train.jsonl", "same.safetensors", "--row", "32")
        self.assertEqual(*(runs.hash_of(self.home / name) for name in ("tokens.safetensors", "same.safetensors")))
        run = self.run_of("run")
        self.assertEqual(run.outcome()["code"], 0)
        self.assertEqual(len(run.metrics()), 4)

    def test_run_survives_closed_output(self):
        mine, theirs = os.pipe()
        launched = self.start("unread", self.ENDLESS, stdout=theirs)
        os.close(theirs)
        os.read(mine, 1)
        os.close(mine)
        launched.at_step(1)
        launched.at_step(launched.run.metrics()[-1]["step"] + 20)
        launched.signal(signal.SIGTERM)
        self.assertEqual(self.end_soon(launched), 0)

    def test_unread_output_does_not_block_run(self):
        mine, theirs = os.pipe()
        self.addCleanup(os.close, mine)
        launched = self.start("unread", self.ENDLESS, stdout=theirs)
        # Full before the first line: whoever writes to it in a blocking way waits for ever.
        os.set_blocking(theirs, False)
        try:
            while True:
                os.write(theirs, b" " * 4096)
        except BlockingIOError:
            os.set_blocking(theirs, True)
        os.close(theirs)
        launched.at_step(20)
        launched.signal(signal.SIGTERM)
        self.assertEqual(self.end_soon(launched), 0)

    def test_status_and_stop_of_live_and_ended_run(self):
        launched = self.endless()
        stages = launched.run.stages()
        launched.wait_for("progress in status.json",
                          lambda: all("phase" in p for p in launched.run.status()["processes"] or [{}]))
        out = self.ok("status", "runs/endless")
        self.assert_says(out, f"training .process {launched.process.pid}", r"step \d+/100000")
        for stage, pid in stages.items():
            self.assert_says(out, rf"stage {stage}\.0 on .*pid {pid}")
        code, out, err = self.strait("status", "runs/endless", "--json")
        status = json.loads(out)
        self.assertTrue(status["live"])
        self.assertEqual({p["pid"] for p in status["processes"]}, set(stages.values()))

        out = self.ok("stop", "runs/endless")
        self.assert_says(out, "checkpoint is runs/endless/checkpoints/step-", "strait resume")
        self.assertEqual(self.end_soon(launched), 0)

        out = self.ok("status", "runs/endless")
        self.assert_says(out, r"stopped on request after step \d+ of 100000; resume with: strait resume runs/endless")
        out = self.ok("watch", "runs/endless")
        self.assert_says(out, "stopped on request after step")
        self.assertNotIn("last heard", out)
        code, out, err = self.strait("status", "runs/endless", "--json")
        status = json.loads(out)
        self.assertFalse(status["live"])
        self.assertEqual(status["outcome"]["code"], 0)
        _, err = self.ended(10, "stop", "runs/endless")
        self.assert_says(err, "no run is live in runs/endless")

    def test_stops_beside_each_other_and_ctrl_c_ask_only_once(self):
        launched = self.endless(**{"checkpoint.every": 0})
        stage = launched.run.stages()[1]
        runs.stop_process(stage)  # so that all of them come before its step is made
        launched.signal(signal.SIGINT)
        launched.at_event("stopping")
        asked = [self.launch("stop", "runs/endless") for _ in range(2)]
        for one in asked:
            one.wait_for("its request", lambda one=one: "to finish its step, save and exit" in one.output())
        os.kill(stage, signal.SIGCONT)
        for one in (*asked, launched):
            self.assertEqual(one.end(), 0, one.output())
        outcome = launched.run.outcome()
        self.assertTrue(outcome["stopped"])
        self.assertEqual(launched.run.checkpoints(), [outcome["step"]])
        self.assertEqual([event["now"] for event in launched.run.events("stopping")], [False])

    def test_stop_now_exits_immediately(self):
        launched = self.endless(**{"checkpoint.every": 0})
        self.ok("stop", "--now", "runs/endless")
        self.assertEqual(self.end_soon(launched), 130)


class SavedRuns(runs.RunCase):
    SETTINGS = {**runs.RunCase.SETTINGS, "train.steps": 100_000, "checkpoint.every": 5}

    def stop(self, launched):
        launched.signal(signal.SIGINT)
        code = launched.end()
        self.assertEqual(code, launched.run.outcome()["code"])
        return code

    def saved_run(self, name):
        """A stopped run with two checkpoints."""
        launched = self.start(name)
        launched.wait_for("two checkpoints", lambda: len(launched.run.checkpoints()) > 1)
        self.assertEqual(self.stop(launched), 0, launched.output())
        return launched.run

    def resumed_for(self, run, checkpoints, *words):
        """Goes on for so many checkpoints, and stops."""
        before = len(run.events("checkpoint"))
        launched = self.launch("resume", f"runs/{run.path.name}", *words, name=run.path.name)
        launched.wait_for("checkpoints", lambda: len(run.events("checkpoint")) >= before + checkpoints)
        self.assertEqual(self.stop(launched), 0, launched.output())
        return launched


class Disk(SavedRuns):
    def folders(self, run):
        return sorted(path.name for path in (run.path / "checkpoints").iterdir())

    def test_old_checkpoint_that_cannot_be_removed_is_one_warning(self):
        run = self.saved_run("mounted")
        oldest = run.path / "checkpoints" / f"step-{run.checkpoints()[0]}"
        self.mount_tmpfs(oldest / "held")
        launched = self.resumed_for(run, 5)
        warnings = [e for e in run.events("stage_event") if e["name"] == "not_pruned"]
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn(str(oldest.relative_to(self.home)), warnings[0]["text"])
        self.assertEqual(launched.output().count("an old checkpoint stays"), 1)
        self.assertEqual(run.events("checkpoint_failed"), [])
        self.assertEqual(len(run.checkpoints()), 2)
        self.assertEqual(len(self.folders(run)), 3)
        self.assertEqual([path.name for path in oldest.iterdir()], ["held"])

    def test_leftovers_of_former_starts_are_removed(self):
        run = self.saved_run("torn")
        checkpoints = run.path / "checkpoints"
        last = run.checkpoints()[-1]
        for name in ("step-1", f"step-{last + 1}", f"step-{last}.aside-1", "step-90.aside-7"):
            (checkpoints / name).mkdir()
            (checkpoints / name / "stage-0.replica-0.safetensors.tmp-1").write_bytes(b"half")
        (checkpoints / f"step-{last}" / "stage-1.replica-0.safetensors.tmp-1").write_bytes(b"half")
        self.resumed_for(run, 1)
        self.assertEqual(self.folders(run), sorted(f"step-{step}" for step in run.checkpoints()))
        self.assertEqual(len(run.checkpoints()), 2)
        self.assertEqual(list(checkpoints.glob("*/*.tmp-*")), [])

    def test_disk_that_refuses_checkpoints_ends_run_with_31(self):
        launched = self.start("refused")
        launched.at_event("checkpoint")
        self.mount_tmpfs(launched.run.path / "checkpoints", "-o", "ro")
        self.assertEqual(launched.end(), 31, launched.output())
        self.assertRegex(launched.run.outcome()["cause"], "3 checkpoints in a row.*Read-only")

    def test_refused_last_checkpoint_ends_run_with_31(self):
        launched = self.start("last", {"checkpoint.every": 0})
        launched.at_step(1)
        self.mount_tmpfs(launched.run.path / "checkpoints", "-o", "ro")
        self.assertEqual(self.stop(launched), 31, launched.output())
        self.assertRegex(launched.run.outcome()["cause"], "its last checkpoint failed: .*stage .*Read-only")


    def test_trace_that_cannot_be_written_changes_no_end(self):
        launched = self.start("untraced")
        launched.at_step(1)
        (launched.run.path / "logs/0.0.trace.json").mkdir()
        self.assertEqual(self.stop(launched), 0, launched.output())
        self.assertRegex(launched.output(), "no trace of stage 0.0: .*0.0.trace.json")
        self.assertEqual(launched.run.checkpoints()[-1], launched.run.metrics()[-1]["step"])


# What every start writes; all other files of a run belong to its state.
OF_A_START = ("events.jsonl", "status.json", "generation", "lock", "locks", "logs", "report.html", "trace.json")


class Resumes(SavedRuns):
    """A resume changes the run when all processes have loaded: all of it or nothing."""

    def state(self, run):
        files = (path.relative_to(run.path) for path in run.path.rglob("*") if not path.is_dir())
        kept = [file for file in files if file.parts[0] not in OF_A_START]
        return {str(file): runs.hash_of(run.path / file) for file in kept}

    def damage(self, run, step):
        shard = run.path / "checkpoints" / f"step-{step}" / "stage-1.replica-0.safetensors"
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)

    def stages_of(self, launched):
        found = []
        for pid in runs.descendants(runs.processes(), launched.process.pid):
            with contextlib.suppress(OSError):
                program = pathlib.Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")[0]
                if program.endswith(b"strait-stage"):
                    found.append(pid)
        return found

    def test_failed_start_changes_nothing(self):
        run = self.saved_run("failed")
        older, newest = run.checkpoints()
        self.damage(run, newest)
        before = self.state(run)
        self.assertIn("plan.json", before)
        launched = self.launch("resume", "runs/failed", "--set", "pipeline.stages=3", name="failed")
        # Before it has loaded: one that is stopped never does.
        stage = launched.wait_for("stages", lambda: self.stages_of(launched))[0]
        runs.stop_process(stage)
        connected = lambda: len(run.processes()) == 2
        launched.wait_for("the other stages", connected)
        os.kill(stage, signal.SIGKILL)
        self.assertEqual(launched.end(), 20, launched.output())
        self.assertEqual(self.state(run), before)
        words = ["--set", "pipeline.stages=3", "--without", "7"]
        self.ended(10, "resume", "runs/failed", *words)
        self.assertEqual(self.state(run), before)
        launched = self.resumed_for(run, 2)
        self.assertRegex(launched.output(), f"going on from .*step-{older},.*is damaged")
        self.assertEqual(len(run.plan()["processes"]), 2)
        run.curve()

    def test_resume_killed_while_it_changes_files_is_completed_by_the_next(self):
        if not shutil.which("strace"):
            self.skipTest("needs strace")
        saved = self.train("saved", {"train.steps": 20, "checkpoint.every": 5})
        self.assertEqual(saved.checkpoints(), [15, 20])
        # File, system call on it, and the how many-th of them is the last.
        deaths = [
            ("resume.journal.json", "/stat", 2),  # before the journal is there: nothing has changed
            ("checkpoints/step-20", "/rename", 1),
            ("recipe.toml", "/stat", 2),
            ("plan.json", "/stat", 4),
            ("resume.journal.json", "/unlink", 1),
        ]
        for round_, (file, call, count) in enumerate(deaths):
            with self.subTest(file=file, call=call):
                run = self.run_of(f"killed-{round_}")
                shutil.copytree(saved.path, run.path)
                before = self.state(run)
                path = run.path.relative_to(self.home)
                words = ["strace", "-qq", "-o", "/dev/null", "-P", path / file, "-e", f"trace={call}"]
                words += ["-e", f"inject={call}:signal=SIGKILL:when={count}", self.program]
                words += ["resume", path, "--from", "15", "--set", "pipeline.stages=3"]
                self.launcher_was_killed = True
                done = subprocess.run(words, cwd=self.home, capture_output=True)
                self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
                self.wait_for_no_processes()
                (run.path / "report.html.tmp-1-0").write_text("left by a launcher that was killed")
                if round_ == 0:
                    after = self.state(run)
                    self.assertEqual({file: after[file] for file in after if "tmp-" not in file}, before)
                    self.resumed(run, "--from", "15", "--set", "pipeline.stages=3")
                else:
                    self.assertIn("resume.journal.json", self.state(run))
                    self.assertIn("resuming from step 15", self.resumed(run))
                self.assertEqual(list(run.path.rglob("*.tmp-*")), [])
                self.assertEqual(len(run.plan()["processes"]), 3)
                self.assertIn("stages = 3", (run.path / "recipe.toml").read_text())
                self.assertNotIn("resume.journal.json", self.state(run))
                self.assert_same_bits(saved.learnt(20), run.learnt(20))

    def test_unreadable_checkpoint_is_passed_over_on_request_only(self):
        run = self.saved_run("unreadable")
        older, newest = run.checkpoints()
        manifest = run.path / "checkpoints" / f"step-{newest}" / "manifest.json"
        good = manifest.read_bytes()
        manifest.unlink()
        manifest.symlink_to("manifest.json")  # every look at it fails with ELOOP
        metrics = run.metrics()
        code, out, err = self.strait("resume", "runs/unreadable")
        self.assertNotEqual(code, 0)
        self.assertRegex(err, f"cannot look at .*step-{newest}/manifest.json.*nothing was changed")
        self.assertIn(f"strait resume runs/unreadable --from {older} (it has: {newest}, {older})", err)
        self.assertEqual(run.metrics(), metrics)
        self.assertTrue(manifest.is_symlink())
        _, err = self.ended(10, "resume", "runs/unreadable", "--from", "1")
        self.assertIn(f"no checkpoint of step 1; it has: {newest}, {older}", err)
        # Readable again, it is the newest; the user may give it up nevertheless.
        manifest.unlink()
        manifest.write_bytes(good)
        launched = self.resumed_for(run, 1, "--from", str(older))
        self.assertIn(f"resuming from step {older}", launched.output())
        run.curve()


class Commands(runs.RunCase):
    def test_output_pipe_may_close_early(self):
        recipe = self.write_recipe("piped")
        words = f'"{self.program}" run {recipe} | head -1'
        done = subprocess.run(["bash", "-o", "pipefail", "-c", words], cwd=self.home, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 1)
        self.assertEqual(len(self.run_of("piped").metrics()), 20)

    def test_output_that_cannot_be_written_is_an_error(self):
        self.train("run")
        with open("/dev/full", "w") as full:
            for words in (["eval", "runs/run", "--data", "train.jsonl", "--json"], ["status", "runs/run"],
                          ["generate", "runs/run", "--prompt", "a", "--on", "here"],
                          ["generate", "runs/run", "--prompt", "a", "--on", "hosts"], ["plan", self.write_recipe("run")]):
                done = subprocess.run([self.program, *words], cwd=self.home, stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 30, done.stderr)
                self.assertIn("cannot write to stdout: No space left on device", done.stderr)

    def test_parent_that_ignores_ends_of_children_changes_nothing(self):
        launched = self.start("ignored", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(launched.end(), 0, launched.output())
        self.assertNotIn("did not exit", launched.output())
        launched = self.start("killed", {"train.steps": 100_000},
                              preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        launched.at_step(1)
        os.kill(next(iter(launched.run.stages().values())), signal.SIGKILL)
        self.assertEqual(launched.end(), 20, launched.output())
        self.assertIn("signal 9", launched.run.outcome()["cause"])


if __name__ == "__main__":
    runs.main()
