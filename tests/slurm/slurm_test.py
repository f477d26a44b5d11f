"""Runs in a real Slurm: submitted, requeued when their time is up, stopped, resumed; with the same
bits as on one machine."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import cluster
import runs

SLOW = 120  # seconds: a job waits for the scheduler before anything else


class SlurmRuns(runs.RunCase):
    of_local_runs = {}  # by their number of steps: (curve, state)

    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster()
        cls.addClassCleanup(cls.cluster.close)
        # For sbatch and its kin, wherever strait calls them.
        changed = {k: v for k, v in cls.cluster.environment.items() if os.environ.get(k) != v}
        before = {k: os.environ.get(k) for k in changed}
        os.environ.update(changed)
        cls.addClassCleanup(
            lambda: [os.environ.pop(k) if v is None else os.environ.update({k: v})
                     for k, v in before.items()]
        )

    def run_processes(self):
        """Without the cluster's own daemons, which outlive each test."""
        table = runs.processes()
        daemons = self.cluster.pids()
        ours = set(daemons)
        for daemon in daemons:  # slurmctld has a helper, slurmd its slurmstepd
            ours.update(p for p in runs.descendants(table, daemon) if not self.belongs_to_job(p))
        return {pid: one for pid, one in super().run_processes().items() if pid not in ours}

    def belongs_to_job(self, pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as words:
                return b"slurmctld" not in words.read().split(bytes(1))[0]
        except OSError:
            return False  # it has ended

    def tearDown(self):
        for job in self.cluster.jobs():
            self.cluster.call("scancel", job)
        runs.wait_for("an empty queue", lambda: not self.cluster.jobs(), SLOW)
        self.wait_for_no_processes()

    def submit(self, name, settings=None, nodes=2):
        """The number of the job, and its run."""
        recipe = self.write_recipe(name, {"hosts.backend": "slurm", **(settings or {})})
        code, out, err = self.strait("run", recipe)
        self.assertEqual(code, 0, out + err)
        self.assertRegex(out, rf"runs/{name} is Slurm job \d+, on {nodes} nodes")
        return self.job_of(name), self.run_of(name)

    def job_of(self, name):
        return json.loads((self.home / "runs" / name / "slurm.json").read_text())["job"]

    def said(self, run):
        log = run.path / "slurm.log"
        return log.read_text() if log.exists() else "(no output)"

    def wait_for_end(self, run):
        runs.wait_for("the end of the job", lambda: not self.cluster.jobs(), SLOW)
        self.assertTrue(run.events("ended"), self.said(run))
        self.assertEqual(run.outcome()["code"], 0, self.said(run))

    def at_step(self, run, step):
        runs.wait_for(f"step {step}", lambda: any(m["step"] >= step for m in run.metrics()), SLOW)

    def status(self, run):
        code, out, err = self.strait("status", run.path.relative_to(self.home))
        self.assertEqual(code, 0, out + err)
        return out

    def assert_is_local_run(self, run, settings=None):
        step = run.checkpoints()[-1]
        if step not in self.of_local_runs:
            local = self.train(f"{run.path.name}-local", settings)
            self.of_local_runs[step] = local.learnt(step)
        self.assert_same_bits(self.of_local_runs[step], run.learnt(step))

    def test_job_matches_bits_of_local_run(self):
        _, run = self.submit("plain")
        self.wait_for_end(run)
        self.assertEqual([p["host"] for p in run.plan()["processes"]], ["n0", "n1"])
        self.assertFalse((run.path / "slurm.json").exists())
        self.assert_is_local_run(run)

    def test_warned_job_saves_and_requeues_to_same_bits(self):
        settings = {"train.steps": 400}
        job, run = self.submit("warned", settings)
        self.at_step(run, 3)
        # As Slurm itself does before the time limit, only now.
        self.assertEqual(self.cluster.call("scancel", "--batch", "--signal=USR1", job)[0], 0)
        runs.wait_for("the requeue", lambda: "goes back into the queue" in self.said(run), SLOW)
        self.wait_for_end(run)
        self.assertIn("resuming from step", self.said(run))
        self.assertEqual(len(run.events("started")), 2)
        self.assertEqual(len(run.curve()), 400)
        self.assert_is_local_run(run, settings)

    def test_warned_job_with_more_steps_requeues(self):
        """The plan on disk, which ended with step 20, changes only when the job's processes have loaded."""
        settings = {"train.steps": 390, "train.decay": "constant"}
        _, run = self.submit("longer", {**settings, "train.steps": 20})
        self.wait_for_end(run)
        self.resumed(run, "--set", "train.steps=390")
        self.at_step(run, 23)
        self.assertEqual(self.cluster.call("scancel", "--batch", "--signal=USR1", self.job_of("longer"))[0], 0)
        runs.wait_for("the requeue", lambda: "goes back into the queue" in self.said(run), SLOW)
        self.wait_for_end(run)
        self.assertEqual(len(run.curve()), 390)
        self.assert_is_local_run(run, settings)

    def test_time_limit_requeues_job(self):
        job, run = self.submit("limited", {
            "train.steps": 1_000_000, "hosts.slurm.time": "1", "hosts.slurm.warning": 25})
        self.at_step(run, 1)
        self.assertIn(f"Slurm job {job}: running on n[0-1]", self.status(run))
        runs.wait_for("Slurm's warning", lambda: "goes back into the queue" in self.said(run), SLOW)
        saved = run.checkpoints()[-1]
        runs.wait_for("steps of the second start", lambda: run.metrics()[-1]["step"] > saved, SLOW)
        self.assertIn("requeued once", self.status(run))
        code, out, err = self.strait("stop", "runs/limited", seconds=SLOW)
        self.assertEqual(code, 0, out + err)
        self.assertIn(f"requested Slurm job {job} to finish its step", out)
        self.assertGreater(run.checkpoints()[-1], saved)
        # Nothing was lost or done twice.
        self.assertEqual(sorted(run.curve()), list(range(1, run.checkpoints()[-1] + 1)))

    def test_stopped_job_is_resumed_by_another(self):
        settings = {"train.steps": 400}
        job, run = self.submit("stopped", settings)
        self.at_step(run, 3)
        code, out, err = self.strait("stop", "runs/stopped", seconds=SLOW)
        self.assertEqual(code, 0, out + err)
        self.assertFalse((run.path / "slurm.json").exists())
        self.assertLess(run.checkpoints()[-1], 400)
        # The job changes the run, when its processes have loaded.
        self.assertIn("Slurm job", self.resumed(run, "--set", "checkpoint.every=90"))
        self.assertGreater(self.job_of("stopped"), job)
        self.wait_for_end(run)
        self.assertIn("every = 90", (run.path / "recipe.toml").read_text())
        self.assertEqual(run.plan()["recipe"]["checkpoint"]["every"], 90)
        self.assertEqual([p["host"] for p in run.plan()["processes"]], ["n0", "n1"])
        self.assertEqual(list(run.path.glob("resume.*")), [])
        self.assert_is_local_run(run, settings)

    def test_pending_job_is_shown_and_cancelled(self):
        job, run = self.submit("waiting", {"hosts.slurm.partition": "closed"})
        self.assertIn(f"Slurm job {job}: pending (Partition", self.status(run))
        for verb, word in (("run", "waiting.toml"), ("resume", "runs/waiting")):
            code, _, err = self.strait(verb, word)
            self.assertEqual(code, 10, err)
            self.assertRegex(err, rf"runs/waiting belongs to Slurm job {job}, pending .*strait stop")
        code, out, err = self.strait("stop", "runs/waiting", seconds=SLOW)
        self.assertEqual(code, 0, out + err)
        self.assertIn(f"cancelled Slurm job {job}, which was pending", out)
        self.assertEqual(self.cluster.jobs(), {})
        # Its place is free again.
        self.submit("waiting")

    def test_dead_stage_ends_job_and_is_named(self):
        _, run = self.submit("killed", {"train.steps": 1_000_000, "hosts.restart": 0})
        self.at_step(run, 1)
        # Other users of a node may read these.
        shown = b"".join(pathlib.Path(f"/proc/{pid}/{what}").read_bytes()
                         for pid in self.run_processes() for what in ("cmdline", "environ"))
        self.assertIn(b"strait-stage\0--join\0-\0", shown)
        self.assertNotIn(b"secret_key", shown)
        os.kill(run.stages()[1], signal.SIGKILL)
        runs.wait_for("the end of the job", lambda: not self.cluster.jobs(), SLOW)
        self.assertEqual(run.outcome()["culprit"], "1.0")
        self.assertIn("signal 9", self.said(run))

    def test_dead_stage_restarts_in_its_job(self):
        settings = {"train.steps": 120, "checkpoint.every": 5}
        job, run = self.submit("restarted", settings)
        runs.wait_for("a checkpoint", lambda: run.events("checkpoint"), SLOW)
        os.kill(run.stages()[1], signal.SIGKILL)
        self.wait_for_end(run)
        restarts = run.events("restart")
        self.assertEqual([one["number"] for one in restarts], [1], self.said(run))
        self.assertGreaterEqual(restarts[0]["from"], 5)
        self.assertNotIn("requeue", self.said(run))
        self.assert_is_local_run(run, settings)

    def test_killed_launcher_ends_job_and_run_resumes_in_another(self):
        job, run = self.submit("orphaned", {"train.steps": 1_000_000, "checkpoint.every": 20})
        runs.wait_for("a checkpoint", lambda: run.events("checkpoint"), SLOW)
        self.at_step(run, 25)
        os.kill(json.loads((run.path / "lock").read_text())["pid"], signal.SIGKILL)
        runs.wait_for("the end of the job", lambda: not self.cluster.jobs(), SLOW)
        self.wait_for_no_processes()
        self.assertIn(f"Slurm job {job}: failed", self.status(run))
        saved = run.checkpoints()[-1]
        self.resumed(run)
        runs.wait_for("the second start", lambda: len(run.events("training")) == 2, SLOW)
        self.at_step(run, saved + 1)
        self.assertEqual(self.strait("stop", "runs/orphaned", seconds=SLOW)[0], 0)
        self.assertGreater(run.checkpoints()[-1], saved)

    def test_job_with_too_few_nodes_fails(self):
        job, run = self.submit("narrow", {"hosts.slurm.options": ["--nodes=1"]})
        runs.wait_for("the end of the job", lambda: not self.cluster.jobs(), SLOW)
        self.assertRegex(
            self.said(run), rf"strait: the plan needs 2 nodes, but Slurm job {job} has 1: n\d\n")
        self.assertFalse((run.path / "slurm.json").exists())

    def test_reports_slurm_errors(self):
        recipe = self.write_recipe(
            "nowhere", {"hosts.backend": "slurm", "hosts.slurm.partition": "nowhere"})
        code, _, err = self.strait("run", recipe)
        self.assertEqual(code, 10, err)
        self.assertRegex(err, r"^strait: Slurm refuses the job of runs/nowhere: .*[Ii]nvalid partition")
        self.assertEqual(len(err.splitlines()), 1)
        path, os.environ["PATH"] = os.environ["PATH"], "/nowhere"
        try:
            code, _, err = self.strait("run", recipe)
        finally:
            os.environ["PATH"] = path
        self.assertEqual(code, 10, err)
        self.assertIn("there is no program sbatch here", err)
        code, _, err = self.strait("run-allocated", "runs/nowhere")
        self.assertEqual(code, 10, err)
        self.assertIn("for the script of a Slurm job", err)

    def test_emitted_script_runs_both_stages_on_one_node(self):
        recipe = self.write_recipe(
            "emitted", {"hosts.backend": "slurm", "hosts.slurm.stages_per_node": 2})
        code, script, err = self.strait("plan", recipe, "--emit", "sbatch", "--set", "seed=9")
        self.assertEqual(code, 0, err)
        (self.home / "own.sh").write_text(script)
        done = subprocess.run(["sbatch", "own.sh"], cwd=self.home, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        runs.wait_for("the end of the job", lambda: not self.cluster.jobs(), SLOW)
        run = self.run_of("emitted")
        self.assertEqual(run.outcome()["code"], 0)
        self.assertEqual(run.plan()["recipe"]["seed"], 9)
        self.assertEqual({p["host"] for p in run.plan()["processes"]}, {"n0"})


if __name__ == "__main__":
    if reason := cluster.Cluster.reason_to_skip():
        print(f"skipped: {reason}")
        sys.exit(77)
    runs.main()
