"""strait probe against the truth: hosts behind links whose rate and delay are known. They join by token,
as hosts do that cannot be logged into.

Kernels without netem cannot delay packets, so STRAIT_NETLAB names the source of a program that makes hosts
of network namespaces and relays their packets at a rate and with a delay: `netlab up FILE`, with lines
"hosts N", "prefix NAME" and "link FROM TO rate R delay D". Without it this test is skipped."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "processes"))

import runs

NETLAB = pathlib.Path(os.environ.get("STRAIT_NETLAB", ""))
MEGABITS = 100
NARROW = 25  # from the last host to the one before it
DELAY = 0.030
PAYLOAD = 1448 / 1500  # of a packet, behind the headers of IP and TCP
TOLERANCE = 0.05


def built_netlab():
    """The program, or why there is none."""
    if os.geteuid() != 0:
        return None, "needs root for network namespaces"
    if not pathlib.Path("/dev/net/tun").exists():
        return None, "needs /dev/net/tun"
    if not NETLAB.is_file():
        return None, "needs STRAIT_NETLAB, the source of what shapes the links"
    program = pathlib.Path(os.environ.get("STRAIT_BUILD", runs.BIN.parent)) / "netlab"
    if not program.exists() or program.stat().st_mtime < NETLAB.stat().st_mtime:
        unfinished = program.with_suffix(f".{os.getpid()}")
        words = ["c++", "-O2", "-std=c++20", str(NETLAB), "-o", str(unfinished)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            return None, f"netlab cannot be compiled here: {done.stderr[:300]}"
        unfinished.replace(program)
    return program, None


class Probe(runs.RunCase):
    """The launcher is host 0 of the network, the hosts of the recipe are the others."""

    def setUp(self):
        super().setUp()
        self.prefix = f"probe{os.getpid() % 10000}-"
        lines = [f"hosts 3\nprefix {self.prefix}\n"]
        lines += [f"link * * rate {MEGABITS}mbit delay {DELAY * 1e3:.0f}ms\n"]
        lines += [f"link 2 1 rate {NARROW}mbit delay {DELAY * 1e3:.0f}ms\n"]
        (self.home / "lab.net").write_text("".join(lines))
        self.lab = subprocess.Popen([NETLAB_PROGRAM, "up", "lab.net", "--ctl", "lab.ctl", "--stats", "lab.stats"],
                                    cwd=self.home,
                                    stderr=subprocess.PIPE,
                                    text=True)
        self.addCleanup(self.end_lab)
        while "hosts up" not in (line := self.lab.stderr.readline()):
            self.assertTrue(line, "netlab ended")
        self.joined = []
        self.addCleanup(self.end_joined)

    def end_lab(self):
        self.lab.terminate()
        self.lab.communicate(timeout=30)

    def end_joined(self):
        for process in self.joined:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()

    def on(self, host, *words):
        return ["ip", "netns", "exec", f"{self.prefix}{host}", *map(str, words)]

    def join(self, host, token):
        home = self.home / f"home{host}"
        home.mkdir()
        with open(self.home / f"join{host}.txt", "wb") as log:
            self.joined.append(
                subprocess.Popen(self.on(host, self.program, "join", token), env={**os.environ, "HOME": str(home)},
                                 stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            )

    def probe(self, recipe):
        with open(self.home / "probe.txt", "wb") as log:
            probing = subprocess.Popen(
                self.on(0, self.program, "probe", recipe, "-o", "links.toml"), cwd=self.home, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT,
            )
        self.joined.append(probing)
        said = self.home / "probe.txt"

        def tokens():
            found = re.findall(r"^  h(\d): (.*\.token)$", said.read_text(), re.MULTILINE)
            return len(found) == 2 and all(pathlib.Path(path).exists() for _, path in found) and found

        for host, token in runs.wait_for("tokens", tokens):
            self.join(int(host), token)
        self.assertEqual(probing.wait(120), 0, said.read_text())
        for process in self.joined:
            self.assertEqual(process.wait(30), 0)
        return said.read_text()

    def test_measurements_are_within_five_percent(self):
        settings = {"hosts.backend": "join", "hosts.list": ["h1", "h2"], "hosts.address": "10.77.0.1"}
        recipe = self.write_recipe("probed", settings)
        said = self.probe(recipe)
        print(said)
        table = tomllib.loads((self.home / "links.toml").read_text())
        links = {(link["from"], link["to"]): link for link in table["links"]}
        self.assertEqual(sorted(links), [("h1", "h2"), ("h2", "h1")])
        for ends, megabits in {("h1", "h2"): MEGABITS, ("h2", "h1"): NARROW}.items():
            link = links[ends]
            one, several = link["bits_per_second"], link["flows_bits_per_second"]
            self.assertAlmostEqual(one / 1e6 / megabits, 1, delta=TOLERANCE, msg=f"{ends}")
            for rate in (one, several):
                share = rate / 1e6 / (megabits * PAYLOAD)
                self.assertAlmostEqual(share, 1, delta=TOLERANCE, msg=f"{ends}: payload")
            self.assertAlmostEqual(link["seconds"] / DELAY, 1, delta=TOLERANCE, msg=f"{ends}")
        self.assertEqual([host["name"] for host in table["hosts"]], ["h1", "h2"])
        for host in table["hosts"]:
            self.assertGreater(host["flops_per_second"], 1e6)
            self.assertGreater(host["backward"], 0.2)
            self.assertGreater(host["memory_bytes_per_second"], 1e8)
        known = self.write_recipe("known", {**settings, "hosts.links": "links.toml"})
        plan = subprocess.run(self.on(0, self.program, "plan", known), cwd=self.home, capture_output=True, text=True)
        self.assertEqual(plan.returncode, 0, plan.stderr)
        self.assertIn("forecast at measured", plan.stdout)
        self.assertIn("Mbit/s and 30", plan.stdout)


if __name__ == "__main__":
    NETLAB_PROGRAM, why_not = built_netlab()
    if why_not:
        print(f"skipped: {why_not}")
        sys.exit(77)
    runs.main()
