"""How long a run over hosts takes to its first step, phase by phase, and what that costs in CPU.

usage: host_start.py [--bin FOLDER] [--against FOLDER] [--stages 8] [--rounds 3] [--quick]
One stage on each host: real sshd in namespaces (../hosts), which all share this machine's cores, so that
what a process costs to start counts for all of them. With --against, another build runs in turn with it.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
SETTINGS = "STRAIT_HOST_START"  # the words, where the script has started itself again
TICKS = os.sysconf("SC_CLK_TCK")
WIDE = 28


def read_words():
    """From the command line, or from whoever started this script again inside a namespace."""
    if SETTINGS in os.environ:
        return argparse.Namespace(**json.loads(os.environ[SETTINGS]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default=os.environ.get("STRAIT_BIN", "build/release/bin"))
    parser.add_argument("--against", default="")
    parser.add_argument("--stages", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small: shows only that it works")
    words = parser.parse_args()
    words.builds = [str(pathlib.Path(one).resolve()) for one in (words.bin, words.against) if one]
    if words.quick:
        words.stages, words.rounds = 2, 1
    os.environ[SETTINGS] = json.dumps(vars(words))
    os.environ["STRAIT_BIN"] = words.builds[0]
    sys.argv = sys.argv[:1]
    return words


WORDS = read_words()
sys.path.insert(0, str(TESTS / "hosts"))

import hosts
import runs


def cpu_of(pid):
    """Seconds of a process, and of those of its children that have ended."""
    try:
        text = pathlib.Path("/proc", str(pid), "stat").read_text(errors="replace")
        line = pathlib.Path("/proc", str(pid), "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return "", 0.0, 0.0
    fields = text[text.rindex(")") + 2 :].split()
    own, ended = (int(fields[a]) + int(fields[a + 1]) for a in (11, 13))
    return line.replace("\0", " "), own / TICKS, ended / TICKS


class Start(hosts.HostsCase):
    COUNT = WORDS.stages

    @classmethod
    def setUpClass(cls):
        if not hosts.has_namespaces():
            print("skipped: needs network namespaces")
            sys.exit(77)

    def install(self, build):
        self.program = pathlib.Path(build) / "strait"
        for host in self.hosts:
            link = host.home / ".strait/bin"
            link.unlink(missing_ok=True)
            link.symlink_to(build)

    def cpu(self, launched):
        """Who has spent how much up to now: label -> seconds."""
        _, own, ended = cpu_of(launched.process.pid)
        spent = {"CPU launcher": own, "CPU its ssh": ended, "CPU sshd": 0.0}
        spent |= {"CPU agents": 0.0, "CPU stages": 0.0}
        for host in self.hosts:
            _, own, ended = cpu_of(host.pid)
            spent["CPU sshd"] += own + ended
            for pid in self.processes_on(host):
                line, own, ended = cpu_of(pid)
                kind = "CPU agents" if "--agent" in line else "CPU stages"
                spent[kind if "strait" in line else "CPU sshd"] += own + ended
        spent["CPU in all"] = sum(spent.values())
        return spent

    def start_once(self, build, name):
        """label -> seconds of one start."""
        self.install(build)
        settings = {"pipeline.stages": WORDS.stages, "model.path": "layers", "train.steps": 100_000}
        recipe = self.write_recipe(name, self.over_ssh(settings))
        # What an earlier start has left is with its host's first process once that has reaped it.
        for host in self.hosts:
            runs.wait_for("a quiet host", lambda h=host: not h.processes(runs.processes(), None))
        before = {host: sum(cpu_of(host.pid)[1:]) for host in self.hosts}
        begun, wall = time.monotonic(), time.time()
        launched = self.launch("run", recipe, name=name)
        launched.at_step(1)
        taken = {"to the first step": time.monotonic() - begun}
        spent = self.cpu(launched)
        for key in ("CPU sshd", "CPU in all"):  # of earlier rounds
            spent[key] -= sum(before.values())
        at = {}
        for event in launched.run.events():
            at.setdefault(event["event"], event["time"] - wall)
            at["last " + event["event"]] = event["time"] - wall
            if event.get("name") == "hosts_up":
                said = re.findall(r"([a-z][a-z ]*?) ([0-9.]+) s", event["text"])
                taken |= {f"  {phase}": float(seconds) for phase, seconds in said}
        taken["at: processes started"] = at["started"]
        taken["at: last hello"] = at["last connected"]
        taken["at: training"] = at["training"]
        launched.end_by(signal.SIGINT, 0)
        return taken | spent

    def test_start(self):
        self.write_model("layers", n_layer=WORDS.stages)
        rounds = {build: [] for build in WORDS.builds}
        for number in range(WORDS.rounds):
            for index, build in enumerate(WORDS.builds):
                rounds[build].append(self.start_once(build, f"start-{number}-{index}"))
        print(f"\n{WORDS.stages} stages on as many hosts, {os.cpu_count()} cores, seconds, medians")
        print(f"of {WORDS.rounds}; load {' '.join(f'{load:.1f}' for load in os.getloadavg())}")
        for build in WORDS.builds:
            print(f"\n{build}")
            for label in dict.fromkeys(label for one in rounds[build] for label in one):
                every = [one.get(label, 0.0) for one in rounds[build]]
                worst = f"{min(every):.2f} to {max(every):.2f}"
                print(f"{label:{WIDE}}{statistics.median(every):6.2f}  ({worst})")


if __name__ == "__main__":
    hosts.main()
