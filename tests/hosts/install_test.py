"""`strait install --hosts`: on machines that have neither this build nor its libraries, the program
runs afterwards; what is there already is not sent again; nothing half is ever found there."""

import hashlib
import os
import pathlib
import re
import shutil
import signal

import hosts
import runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("STRAIT_BUILD", ROOT / "build/release"))
CUDA_BUILD = BUILD / "tests/cuda_build/bin"  # like this one, marked as one with CUDA


class InstallCase(hosts.HostsCase):
    INSTALLED = False
    # A machine of somebody else's: what was built here is not there.
    HOST_OPTIONS = ({"hidden": [p for p in (runs.BIN.resolve().parent, ROOT / ".venv") if p.exists()]}
                    if hosts.has_namespaces()
                    else {})

    def install(self, *options, seconds=300):
        """(exit code, output)."""
        recipe = self.write_recipe("installed", self.over_ssh())
        code, out, err = self.strait("install", "--hosts", recipe, *options, seconds=seconds)
        self.assertEqual(err, "")
        return code, out

    def installed(self):
        """host -> bytes sent, of a whole installation."""
        code, out = self.install()
        self.assertEqual(code, 0, out)
        self.output = out
        found = re.findall(r"(?m)^(h\d+): has strait \S+, ([\d.]+) (\w*B) of", out)
        self.assertEqual(sorted(name for name, _, _ in found), self.site.names(), out)
        unit = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
        return {name: float(number) * unit[of] for name, number, of in found}

    def says(self, host):
        """Build id of the installed program."""
        words = ["sh", "-c", "$HOME/.strait/bin/strait-stage --version"]
        done = self.on_host(host, *words)
        return done.stdout.strip() or done.stderr


def damage(path):
    """One bit in the middle."""
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


class Install(InstallCase):
    COUNT = 2

    def test_install_runs_and_second_install_sends_nothing(self):
        version = self.strait("--version")[1].split()[1]
        sent = self.installed()
        for host in self.hosts:
            self.assertEqual(self.says(host), f"strait-stage {version}")
            self.assertGreater(sent[host.name], 10e6)
        self.ok("doctor", self.write_recipe("installed", self.over_ssh()))
        first, second = self.hosts
        largest = max((first.home / ".strait/content").glob("*/data"), key=lambda p: p.stat().st_size)
        damage(largest)
        builds = second.home / ".strait/builds"
        age = (builds / version).stat().st_mtime
        for name, seconds in (("0.0-old", 10), ("0.0-older", 20)):
            (builds / name).mkdir()
            os.utime(builds / name, (age - seconds, age - seconds))
        self.give_gpu(first)
        sent = self.installed()
        self.assertIn("h0: has a GPU, which this build for CPUs does not use", self.output)
        self.assertNotIn("h1: has a GPU", self.output)
        # What the disk has damaged comes again, to that host only; and two builds stay.
        self.assertGreater(sent["h0"], 0.99 * largest.stat().st_size)
        self.assertLess(sent["h0"], 1.01 * largest.stat().st_size)
        self.assertEqual(sent["h1"], 0)
        self.assertEqual(sorted(p.name for p in builds.iterdir()), ["0.0-old", version])
        self.assert_host_with_gpu_gets_build_with_cuda(first, second, version)

    def assert_host_with_gpu_gets_build_with_cuda(self, first, second, version):
        code, out = self.install("--other-build", str(CUDA_BUILD))
        self.assertEqual(code, 0, out)
        self.assertIn(f"h0: has strait {version} with CUDA", out)
        self.assertRegex(out, rf"h1: has strait {version}, 0 B of")
        marked = f".strait/builds/{version}/lib/libtorch_cuda.so"
        self.assertTrue((first.home / marked).exists())
        self.assertFalse((second.home / marked).exists())
        self.assertEqual(self.says(first), f"strait-stage {version}")
        shutil.rmtree(first.home / "bin")

    def give_gpu(self, host):
        """What the PATH of its logins finds lists one."""
        program = host.home / "bin/nvidia-smi"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\necho 'GPU 0: A GPU (UUID: GPU-1)'\n")
        program.chmod(0o755)

    def arriving(self, host):
        """The last one is not whole."""
        return list(host.home.glob(".strait/incoming.*/*"))

    @hosts.needs_namespaces
    def test_interrupted_install_leaves_former_build(self):
        host = self.hosts[0]
        host.shape(down_megabits=200)
        recipe = self.write_recipe("installed", self.over_ssh(hosts=["h0"]))
        scratch = self.home / "scratch"
        scratch.mkdir()
        launched = self.launch("install", "--hosts", recipe, env={**os.environ, "TMPDIR": str(scratch)})
        launched.wait_for("a file to arrive", lambda: len(self.arriving(host)) > 1)
        launched.signal(signal.SIGKILL)
        launched.end()
        # ssh goes with its caller, sshd's session with ssh, and what was coming with the session.
        runs.wait_for("the far side to tidy up", lambda: not self.processes_on(host))
        self.assertEqual([p.name for p in host.home.glob(".strait/*.*")], [])
        self.assertFalse((host.home / ".strait/bin").exists())
        self.assertEqual(list(scratch.iterdir()), [])
        # What was whole need not come again.
        kept = {p.parent.name: p for p in host.home.glob(".strait/content/*/data")}
        self.assertGreater(len(kept), 0)
        for name, path in kept.items():
            self.assertEqual(hashlib.sha256(path.read_bytes()).hexdigest(), name)


class SmallDisk(InstallCase):
    COUNT = 1
    HOST_OPTIONS = {**InstallCase.HOST_OPTIONS, "home_size": "20m"} if hosts.has_namespaces() else {}

    @hosts.needs_namespaces
    def test_reports_full_disk(self):
        code, out = self.install()
        self.assertEqual(code, 30, out)
        self.assertIn("the disk of h0 is full", out)
        words = ["sh", "-c", "find $HOME/.strait -type f"]
        left = self.on_host(self.hosts[0], *words).stdout
        self.assertEqual(left, "")


if __name__ == "__main__":
    hosts.main()
