"""A long run over three hosts and a spare one while everything happens to it: processes killed and stopped, cables
cut, power lost, disks full, the launcher killed. At the end: the bits of a run on one machine to which nothing happened."""

import collections
import itertools
import json
import os
import random
import signal
import time

import hosts
import runs

MINUTES = float(os.environ.get("STRAIT_MINUTES", 5))
SEED = int(os.environ.get("STRAIT_SEED", 1))
MEGABITS = 2  # of each cable: a step takes time and not processors
DISK = "64m"  # of each host: several checkpoints


class Soak(hosts.HostsCase):
    COUNT = 4
    SUPERVISED = {
        "pipeline.stages": 3,
        "train.steps": 1_000_000,
        "train.decay": "constant",  # the number of steps changes nothing
        "checkpoint.every": 20,
        "checkpoint.memory_every": 10,
        "hosts.restart": 3,
    }

    def setUp(self):
        super().setUp()
        self.choose = random.Random(SEED)
        self.faults, self.codes = collections.Counter(), collections.Counter()
        for host in self.hosts:
            self.equip(host)

    def equip(self, host):
        """A small disk, lost with the power; a narrow cable."""
        folder = f"{host.home_inside}/.strait"
        mounted = f"mount -t tmpfs -o size={DISK} tmpfs {folder} && ln -s {runs.BIN.resolve()} {folder}/bin"
        done = self.on_host(host, "sh", "-c", mounted)
        self.assertEqual(done.returncode, 0, done.stderr)
        host.shape(MEGABITS, MEGABITS)

    # The run.

    def step(self):
        """The last step in metrics.jsonl."""
        path = self.soaked.path / "metrics.jsonl"
        if not path.exists():
            return 0
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 20_000))
            lines = file.read().split(b"\n")[-3:-1]
        return int(json.loads(lines[-1])["step"]) if lines else 0

    def go_on(self):
        """Resumes with three stages, on hosts that are all up."""
        names = self.site.names()
        words = ["--set", f"hosts.list={runs.toml(names[:3])}", "--set", f"hosts.spare={runs.toml(names[3:])}"]
        words += ["--set", "pipeline.stages=3"]
        self.launched = self.launch("resume", "runs/soaked", *words, name="soaked")

    def trains_on(self, steps):
        """Waits for this many steps; resumes a run that has ended."""
        target = self.step() + steps
        begun = time.monotonic()
        while self.step() < target:
            if self.launched.process.poll() is not None:
                self.ended(self.launched.process.returncode)
                self.go_on()
            if time.monotonic() - begun > runs.scaled_timeout(300):
                self.fail(f"step {self.step()} for {time.monotonic() - begun:.0f} s:\n{self.launched.output()}")
            time.sleep(0.05)

    def ended(self, code):
        self.codes[code] += 1
        print(f"ended with {code}: {self.launched.output()[-300:]}", flush=True)
        self.assertIn(code, (0, 20, 21, 22, 30, 31, -signal.SIGKILL), self.launched.output())
        for host in self.hosts:  # an agent waits `hosts.hold` for its launcher
            runs.wait_for(f"the end of the run on {host.name}", lambda h=host: not self.parts(h))

    def parts(self, host):
        """pid -> command line of the run's processes there."""
        return {pid: line for pid, line in self.processes_on(host).items() if "strait" in line.split(" ")[0]}

    # Faults.

    def any_part(self):
        found = {pid: line for host in self.hosts for pid, line in self.parts(host).items()}
        return self.choose.choice(sorted(found)) if found else None

    def kill_a_process(self):
        """A stage or an agent."""
        if (pid := self.any_part()) is not None:
            os.kill(pid, signal.SIGKILL)

    def stop_a_process_for_a_while(self):
        if (pid := self.any_part()) is not None:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self.choose.uniform(0.05, 4))
            os.kill(pid, signal.SIGCONT)

    def cut_a_cable_briefly(self):
        host = self.choose.choice(self.hosts)
        for _ in range(self.choose.randint(1, 10)):
            host.cut()
            time.sleep(self.choose.uniform(0.1, 3))
            host.heal()
            time.sleep(self.choose.uniform(0.1, 1))

    def cut_a_cable_for_longer_than_hold(self):
        host = self.choose.choice(self.hosts)
        host.cut()
        time.sleep(self.choose.uniform(8, 15))
        host.heal()

    def cut_the_power(self):
        host = self.choose.choice(self.hosts)
        host.power_off()
        time.sleep(self.choose.uniform(0, 15))
        host.start(self.site.ssh)
        hosts.wait_until_up(host)
        self.equip(host)

    def fill_a_disk(self):
        host = self.choose.choice(self.hosts)
        path = f"{host.home_inside}/.strait/full"
        self.on_host(host, "sh", "-c", f"cat /dev/zero > {path}")
        self.on_host(host, "sh", "-c", f"sleep {self.choose.uniform(1, 10)}; rm {path}")

    def kill_the_launcher(self):
        self.launched.signal(signal.SIGKILL)

    def stop_the_launcher(self):
        self.launched.signal(signal.SIGTERM)

    FAULTS = (kill_a_process, kill_a_process, stop_a_process_for_a_while, cut_a_cable_briefly, cut_a_cable_briefly,
              cut_a_cable_for_longer_than_hold, cut_the_power, fill_a_disk, kill_the_launcher, stop_the_launcher)

    @hosts.needs_namespaces
    @runs.campaign
    def test_whatever_happens_the_bits_are_those_of_a_quiet_run(self):
        until = time.monotonic() + 60 * MINUTES
        settings = self.over_ssh({**self.SUPERVISED, "hosts.spare": ["h3"]}, ["h0", "h1", "h2"])
        self.launched = self.start("soaked", settings)
        self.soaked = self.launched.run
        for number in itertools.count(1):
            self.trains_on(self.choose.randint(5, 60))
            if time.monotonic() > until:
                break
            fault = self.choose.choice(self.FAULTS)
            self.faults[fault.__name__] += 1
            print(f"{number}: step {self.step()}, {fault.__name__}", flush=True)
            fault(self)
        self.launched.signal(signal.SIGTERM)
        self.assertEqual(self.launched.end(300), 0, self.launched.output())
        steps = self.step()
        for name, times in sorted(self.faults.items()):
            print(f"{times:4} {name}")
        restarts = len(self.soaked.events("restart"))
        ends = ", ".join(f"{code}: {times}" for code, times in sorted(self.codes.items()))
        print(f"seed {SEED}: {sum(self.faults.values())} faults, {steps} steps, {restarts} restarts by itself, ends by code: {ends}")
        alone = {"pipeline.stages": 1, "train.steps": steps, "train.decay": "constant"}
        code, out, err = self.strait("run", self.write_recipe("quiet", alone), seconds=3600)
        self.assertEqual(code, 0, out + err)
        quiet = self.run_of("quiet")
        self.assert_same_bits(quiet.learnt(steps), self.soaked.learnt(steps))


if __name__ == "__main__":
    hosts.main()
