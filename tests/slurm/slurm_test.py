"""`srun strait run recipe.toml --rendezvous` in jobs of a real Slurm: requeued when a node's process is
lost and when the time is nearly up, with the same bits as on one machine."""

import os
import signal
import subprocess
import sys

import cluster
import runs

sys.path.insert(0, str(runs.ROOT / "tests" / "engines"))

import engines

SLOW = 120  # seconds: a job waits for the scheduler before anything else

# One machine plays all nodes, so each gets a home of its own, and the first an address.
STRAIT = """\
#!/bin/sh
mkdir -p home$SLURM_PROCID
HOME=$PWD/home$SLURM_PROCID exec "{strait}" "$@" --first 127.0.0.1
"""


class SlurmRuns(runs.RunCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster(nodes=3)
        cls.addClassCleanup(cls.cluster.close)

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

    def submit(self):
        """The script of docs/engines.md."""
        self.expected = engines.expected(self)
        engines.secret(self.home)
        (self.home / "job.sh").write_text(engines.commands("Slurm"))
        (self.home / "bin").mkdir()
        (self.home / "bin" / "strait").write_text(STRAIT.format(strait=self.program))
        (self.home / "bin" / "strait").chmod(0o700)
        path = f"{self.home}/bin:{self.cluster.environment['PATH']}"
        done = subprocess.run(["sbatch", "--parsable", "job.sh"], cwd=self.home, capture_output=True, text=True,
                              env={**self.cluster.environment, "PATH": path})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.job = done.stdout.strip()
        return self.run_of("recipe")

    def said(self):
        logs = [*self.home.glob("slurm-*.out")]
        return logs[0].read_text(errors="replace") if logs else "(no output)"

    def wait_for(self, what, look):
        try:
            runs.wait_for(what, look, SLOW)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.said()}") from None

    def at_checkpoint(self, run, step):
        def whole(folder):
            return (folder / "manifest.json").exists() and len([*folder.glob("*.safetensors")]) >= 4

        self.wait_for(f"a checkpoint of step {step}", lambda: any(
            int(f.name[5:]) >= step and whole(f) for f in run.path.glob("checkpoints/step-*") if f.name[5:].isdigit()))

    def assert_ends_with_bits_of_local_run(self, run):
        self.wait_for("the end of the job", lambda: not self.cluster.jobs())
        self.assertEqual(run.outcome()["code"], 0, self.said())
        self.assert_same_bits(self.expected, run.learnt(engines.STEPS))

    def test_lost_node_process_requeues_to_same_bits(self):
        run = self.submit()
        self.at_checkpoint(run, 5)
        self.assertEqual({p["host"] for p in run.plan()["processes"]}, {"node0", "node1", "node2"})
        os.kill(self.joined_process(), signal.SIGKILL)
        self.wait_for("the second start", lambda: len(run.events("started")) >= 2)
        self.assert_ends_with_bits_of_local_run(run)
        self.assertIn("resuming from step", self.said())

    def joined_process(self):
        for pid in runs.descendants(runs.processes(), os.getpid()):
            with open(f"/proc/{pid}/cmdline", "rb") as words:
                if words.read().split(bytes(1))[1:2] == [b"--join"]:
                    return pid
        raise AssertionError(self.said())

    def test_warning_before_time_limit_saves_and_requeues(self):
        """Slurm signals all processes of a step, the stages too (proctrack/linuxproc)."""
        run = self.submit()
        self.at_checkpoint(run, 5)
        # As Slurm itself does with --signal=TERM@120, only now.
        self.assertEqual(self.cluster.call("scancel", "--signal=TERM", self.job)[0], 0)
        self.wait_for("the end of the first start", lambda: run.events("ended"))
        outcome = run.events("ended")[0]
        self.assertIn(outcome["step"], run.checkpoints(), self.said())
        self.wait_for("the second start", lambda: len(run.events("started")) >= 2)
        self.assert_ends_with_bits_of_local_run(run)
        self.assertIn(f"resuming from step {outcome['step']}", self.said())


if __name__ == "__main__":
    if reason := cluster.Cluster.reason_to_skip():
        print(f"skipped: {reason}")
        sys.exit(77)
    runs.main()
