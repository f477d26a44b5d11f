"""Runs over several hosts by ssh: the bits of a local run, lives of their own, and ends that leave
nothing behind."""

import contextlib
import os
import pathlib
import re
import signal
import time

import hosts
import runs
import terminal

SOON = 10  # seconds within which everybody must have gone


class Ssh(hosts.HostsCase):
    COUNT = 3
    ENDLESS = {"pipeline.stages": 3, "train.steps": 100_000, "checkpoint.every": 5}

    def endless(self, name="endless", hosts=None, **more):
        return self.start(name, self.over_ssh({**self.ENDLESS, **more}, hosts))

    def resumed_from(self, run, *words):
        """A resume that has trained beyond what the run had saved."""
        done = run.checkpoints()[-1]
        again = self.launch("resume", run.path.relative_to(self.home), *words, name=run.path.name)
        again.at_step(done + 2)
        return again

    def places(self, run):
        """process -> host, by the recipe's names."""
        return {one["name"]: one["host"] for one in run.plan()["processes"]}

    def assert_no_processes_on_hosts(self, seconds):
        """No process of a run is left on any live host."""
        runs.wait_for("the end of every process on the hosts",
                      lambda: not any(self.processes_on(host) for host in self.hosts if host.process),
                      seconds)

    def test_matches_bits_and_logs_of_local_run(self):
        settings = {"pipeline.stages": 3, "train.steps": 8}
        local = self.train("local", settings)
        run = self.train("apart", self.over_ssh(settings))
        self.assert_same_bits(local.learnt(8), run.learnt(8))
        self.assertEqual(self.places(run), {"0.0": "h0", "1.0": "h1", "2.0": "h2"})
        out = self.ok("logs", "runs/apart")
        for process in ("0.0", "1.0", "2.0"):
            self.assertRegex(out, rf"(?m)^{process} \| .*stage {process} of run")
        times = [line.split(" | ")[1][:23] for line in out.splitlines()]
        self.assertEqual(times, sorted(times))
        code, only, err = self.strait("logs", "runs/apart", "1.0", "--last", 1)
        self.assertEqual((code, len(only.splitlines())), (0, 1), err)
        self.assertIn(only.splitlines()[-1], out)
        self.assertIn("has no process 7.0; it has 0.0, 1.0, 2.0", self.ended(10, "logs", "runs/apart", "7.0")[1])

    def test_automatic_layout_leaves_out_the_slow_host(self):
        """Stages, their hosts and layers are chosen by the speeds that hosts state; the bits are those of any layout."""
        names = self.site.names()
        links = [f"{a},{b},10000,0.01" for a in names for b in names if a < b]
        (self.home / "links.csv").write_text("\n".join(["from,to,mbit_per_s,ms", *links]))
        settings = self.over_ssh({
            "pipeline.stages": "auto", "pipeline.replicas": 1, "train.steps": 4, "hosts.links": "links.csv",
            "hosts.list": [{"name": name, "tflops": tflops} for name, tflops in zip(names, (4e-5, 1e-6, 4e-5))],
        })
        run = self.train("chosen", settings)
        self.assertEqual(sorted(self.places(run)), ["0.0", "1.0"])
        self.assertEqual(sorted(self.places(run).values()), ["h0", "h2"])
        layouts = run.plan()["layouts"]
        self.assertEqual(layouts[0]["stages"], 2)
        self.assertLess(layouts[0]["step_seconds"], layouts[-1]["step_seconds"])
        self.assertIn("left out, because a step takes no longer without: h1", self.ok("plan", "chosen.toml"))
        self.assert_same_bits(self.train("local", {"train.steps": 4, "pipeline.stages": 2}).learnt(4), run.learnt(4))
        self.ok("resume", "runs/chosen", "--set", "train.steps=6")
        self.assertEqual(sorted(self.places(run).values()), ["h0", "h2"])

    def test_run_survives_closed_terminal(self):
        recipe = self.write_recipe("endless", self.over_ssh(self.ENDLESS))
        console = terminal.Terminal([self.program, "run", recipe], self.home)
        self.addCleanup(console.end)
        run = self.run_of("endless")
        console.read_until(lambda text: re.search(r"step \d+/", text))
        # Nothing hangs on ssh: every connection has ended, here and there.
        runs.wait_for("the end of every ssh", lambda: "ssh\n" not in self.process_names())
        for host in self.hosts:
            connected = lambda host=host: [line for line in host.sockets() if ":22 " in line]
            runs.wait_for(f"no connection to {host.name}", lambda: not connected())
        console.close()
        step = run.metrics()[-1]["step"]
        runs.wait_for("further steps", lambda: run.metrics()[-1]["step"] > step + 3)
        self.assertIsNone(console.process.poll())
        self.watch()
        self.ok("stop", "runs/endless")
        self.assertEqual(console.process.wait(runs.scaled_timeout(SOON)), 0)
        self.assert_no_processes_on_hosts(SOON)
        # Two other hosts take up what three have left.
        again = self.resumed_from(run, "--set", 'hosts.list=["h2", "h1"]')
        self.assertEqual(self.places(run), {"0.0": "h2", "1.0": "h2", "2.0": "h1"})
        self.stopped(again)

    def process_names(self):
        names = set()
        for pid in self.run_processes():
            with contextlib.suppress(OSError):  # it ended while we looked
                names.add(pathlib.Path(f"/proc/{pid}/comm").read_text())
        return names

    def watch(self):
        screen = terminal.Terminal([self.program, "watch", "runs/endless"], self.home)
        self.addCleanup(screen.end)
        # A frame may come in pieces: all of it is waited for.
        words = ("\x1b[?1049h", "runs/endless: training", "stage 2.0 on ", "boundary", "q quits", "█")
        screen.read_until(lambda text: all(word in text for word in words))
        screen.resize(5, 40)
        shown = screen.read_until(lambda text: "more lines" in text)
        self.assertNotIn("stage 2.0 on ", shown[shown.index("more lines") - 200 :])
        screen.type("q")
        self.assertEqual(screen.process.wait(runs.scaled_timeout(SOON)), 0)
        self.assertTrue(screen.as_before(), "the terminal's settings are not what they were")
        screen.read_until(lambda text: "\x1b[?1049l" in text)
        screen.close()
        # Without a terminal: prints frames, and ends with the run.
        paper = self.launch("watch", "runs/endless")
        paper.wait_for("a picture", lambda: "step " in paper.output())
        paper.signal(signal.SIGTERM)
        paper.end()

    @hosts.needs_namespaces
    def test_reports_host_without_power_and_resumes_on_another(self):
        launched = self.endless(hosts=["h0", "h1"])
        # What only h1 has is lost with it: weights and state of stage 2 have to be here too.
        here = lambda step: len([*step.glob("stage-2.*.safetensors")]) == 2
        steps = lambda: launched.run.path.glob("checkpoints/step-*")
        launched.wait_for("a whole checkpoint on this machine", lambda: any(map(here, steps())))
        begun = time.monotonic()
        self.hosts[1].power_off()
        code = launched.end()
        self.assertIn(code, (20, 21), launched.output())  # lost, or not heard of: who sees it first
        self.assert_no_processes_on_hosts(SOON)
        print(f"gone {time.monotonic() - begun:.1f} s after the power went")
        outcome = launched.run.outcome()
        self.assertIn("h1", outcome["cause"])
        self.assertEqual(outcome["host"], "h1")
        # A newer one may have been committed on the hosts, of which h1's part is lost.
        whole = max(int(step.name.split("-")[1]) for step in steps() if step.name[5:].isdigit() and here(step))
        self.stopped(self.resumed_from(launched.run, "--from", whole, "--set", 'hosts.list=["h0", "h2"]'))

    @hosts.needs_namespaces
    def test_reports_host_lost_during_start(self):
        launched = self.endless()
        runs.wait_for("an agent", lambda: self.processes_on(self.hosts[1]))
        self.hosts[1].power_off()
        begun = time.monotonic()
        code = launched.end()
        self.assertNotEqual(code, 0)
        self.assertIn("h1", launched.output())
        self.assert_no_processes_on_hosts(SOON)
        print(f"gone {time.monotonic() - begun:.1f} s after the power went")

    def test_model_is_asked_over_the_hosts(self):
        settings = {**self.ENDLESS, "train.steps": 3, "data.eval": "train.jsonl"}
        self.stopped_at_end(self.start("asked", self.over_ssh(settings)))
        for words in (["eval", "runs/asked", "--json"], ["generate", "runs/asked", "--prompt", "link"]):
            here = self.ok(*words, "--on", "here")
            code, there, err = self.strait(*words, "--on", "hosts")
            self.assertEqual((code, there), (0, here), err)
        self.assert_no_processes_on_hosts(SOON)

    def stopped_at_end(self, launched):
        self.assertEqual(launched.end(), 0, launched.output())

    def test_killed_stage_on_host_is_root_cause(self):
        launched = self.endless()
        launched.at_step(2)
        victim = next(pid
                      for pid, line in self.processes_on(self.hosts[1]).items()
                      if "--agent" not in line and "strait-stage" in line)
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(launched.end(SOON), 20, launched.output())
        outcome = launched.run.outcome()
        self.assertEqual(outcome["culprit"], "1.0", outcome)
        self.assertIn("h1" if hosts.has_namespaces() else os.uname().nodename, outcome["host"])
        self.assertIn("signal 9", outcome["cause"])
        self.assertGreaterEqual(len(outcome["log_tail"]), 1)
        self.assert_no_processes_on_hosts(SOON)

    def test_killed_launcher_ends_all_processes(self):
        launched = self.endless()
        launched.at_event("checkpoint")
        launched.signal(signal.SIGKILL)
        launched.end(SOON)
        self.assert_no_processes_on_hosts(self.HOST_SETTINGS["hosts.hold"] + SOON)
        self.stopped(self.resumed_from(launched.run))

    def test_resume_ends_what_a_killed_launcher_left_on_hosts(self):
        launched = self.endless()
        launched.at_event("checkpoint")
        left = {pid for host in self.hosts for pid in self.processes_on(host)}
        for pid in self.processes_on(self.hosts[1]):
            runs.stop_process(pid)  # nothing there can see that the launcher is gone
        launched.signal(signal.SIGKILL)
        launched.end(SOON)
        again = self.launch("resume", "runs/endless", name="endless")
        again.at_training()
        self.assertEqual([pid for pid in left if runs.alive(pid)], [])
        self.stopped(again)

    def test_second_launch_is_refused_while_run_is_live(self):
        launched = self.endless()
        launched.at_step(1)
        for words in (["run", "endless.toml"], ["resume", "runs/endless"]):
            self.assertIn(f"process {launched.process.pid}", self.ended(10, *words)[1])
        # Another run on the same hosts at the same time finds ports of its own.
        other = self.train("other", self.over_ssh({"pipeline.stages": 3, "train.steps": 2}))
        self.assertEqual(len(other.metrics()), 2)
        step = launched.run.metrics()[-1]["step"]
        launched.at_step(step + 2)
        self.stopped(launched)

    def test_refuses_hosts_that_do_not_fit_plan(self):
        for listed, words in (
            ([{"name": "h0", "slots": 1}, {"name": "h1", "slots": 1}], "has 2 slots, but the run has 3"),
            (["h0", "h1", "h0"], "h0 is listed twice"),
        ):
            recipe = self.write_recipe("misfit", self.over_ssh(self.ENDLESS, listed))
            self.assertIn(words, self.ended(10, "run", recipe)[1])
        shared = [{"name": "h1", "slots": 2}, {"name": "h0", "environment": {"MARK": "a b'$"}}]
        run = self.train("shared", self.over_ssh({"pipeline.stages": 3, "train.steps": 2}, shared))
        self.assertEqual(self.places(run), {"0.0": "h1", "1.0": "h1", "2.0": "h0"})

    def test_starts_eight_stages(self):
        """Prints the time; bench/host_start.py measures its parts."""
        self.write_model("eight", n_layer=8)
        begun = time.monotonic()
        launched = self.endless(**{"pipeline.stages": 8, "model.path": "eight"})
        launched.at_step(1)
        load = os.getloadavg()[0]
        print(f"{time.monotonic() - begun:.1f} s to the first of 8 stages' steps, load {load:.1f}")
        self.stopped(launched)

    @hosts.needs_namespaces
    def test_trains_over_ipv6(self):
        config = self.site.ssh.config.read_text()
        for host in self.hosts:
            config = config.replace(f"HostName {host.address}\n", f"HostName {host.address_6}\n")
        self.site.ssh.config.write_text(config)
        run = self.train("six", self.over_ssh({"pipeline.stages": 2, "train.steps": 3}))
        self.assertEqual(len(run.metrics()), 3)

    def test_reports_start_errors_of_all_hosts(self):
        (self.hosts[0].home / ".strait/bin").unlink()
        (self.hosts[2].folder / "etc/authorized_keys").write_text("")
        _, err = self.ended(11, "run", self.write_recipe("none", self.over_ssh(self.ENDLESS)))
        self.assertIn("h0 has no strait", err)
        self.assertIn("h2 refuses the login", err)
        self.assertNotRegex(err, r"\bh1\b")  # a folder of random letters may hold it
        self.assert_no_processes_on_hosts(SOON)


if __name__ == "__main__":
    hosts.main()
