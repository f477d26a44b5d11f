"""Whatever keeps ssh from bringing a host up is one sentence with the host's name and the fix.

Asked of `strait doctor`, which calls hosts exactly as `strait run` does, against a real sshd. And a host
that loses its power while a run starts keeps the others for seconds only, whatever it was about to do;
one that is slow is waited for.
"""

import json
import os
import shlex
import subprocess
import time
import tomllib

import hosts
import namespace_host
import runs
import sshd

STAGE = shlex.quote(str(runs.BIN.resolve() / "strait-stage"))

CLOCK_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec* now) {
  int (*real)(clockid_t, struct timespec*) = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec -= 3000;
  return result;
}
"""


def write_starter(host, lines):
    """Installs a script on the host in place of this build."""
    folder = host.home / ".strait"
    (folder / "bin").unlink()
    (folder / "bin").mkdir()
    program = folder / "bin/strait-stage"
    program.write_text(f"#!/bin/sh\n{lines}\n")
    program.chmod(0o755)


class DoctorCase(hosts.HostsCase):
    """Runs `strait doctor` for one host."""

    COUNT = 1

    def setUp(self):
        super().setUp()
        self.host = self.hosts[0]

    def doctor(self, settings=None, environment=None):
        """(exit code, finding of kind and place -> text)."""
        recipe = self.write_recipe("checked", self.over_ssh(settings))
        done = subprocess.run(
            [self.program, "doctor", "--json", recipe], cwd=self.home, env=dict(os.environ, **(environment or {})),
            capture_output=True, text=True, timeout=runs.scaled_timeout(runs.TIMEOUT),
        )
        self.assertEqual(done.stderr, "")
        found = {}
        for finding in json.loads(done.stdout):
            key = (finding["kind"], finding["where"])
            found[key] = found.get(key, "") + finding["text"]
        return done.returncode, found

    def wrong(self, code, *words, settings=None, environment=None, place="h0"):
        got, found = self.doctor(settings, environment)
        text = found.get(("wrong", place), f"nothing wrong: {found}")
        for word in words:
            self.assertIn(word, text)
        self.assertEqual(got, code, text)
        return text

    def starter(self, lines):
        write_starter(self.host, lines)


class Doctor(DoctorCase):
    def test_healthy_host(self):
        code, found = self.doctor()
        self.assertEqual(code, 0, found)
        self.assertIn("cores", found["ok", "h0"])
        self.assertIn("rows", found["ok", "data"])
        # For people.
        self.assertRegex(self.ok("doctor", self.write_recipe("checked", self.over_ssh())), r"(?m)^ok +h0 +\d+ cores, ")

    def test_host_keys(self):
        known = self.site.ssh.known_hosts
        true = known.read_text()
        known.write_text("")
        self.wrong(12, "host key of h0 is not known", f"ssh -F {self.site.ssh.config} h0")
        sshd.make_key(self.home / "other")
        other = (self.home / "other.pub").read_text().split()[1]
        address = true.split()[0]
        known.write_text(f"{address} ssh-ed25519 {other}\n")
        self.wrong(12, "h0 shows another host key", f"{known}:1")

    def test_logins(self):
        keys = self.host.folder / "etc/authorized_keys"
        sshd.make_key(self.home / "other")
        keys.write_text((self.home / "other.pub").read_text())
        self.wrong(12, "h0 refuses the login", "Permission denied (publickey)", "without a password")

    def test_addresses(self):
        config = self.site.ssh.config
        true = config.read_text()
        self.wrong(
            10, "no host called nowhere.invalid", settings={"hosts.list": ["nowhere.invalid"]}, place="nowhere.invalid",
        )
        config.write_text(true.replace(f"Port {self.host.port}\n", "Port 1\n"))
        self.wrong(20, "no ssh server answers on h0", "Port in your ssh configuration")

    @hosts.needs_namespaces
    def test_blocked_port(self):
        self.host.refuse(namespace_host.LAUNCHER)
        self.wrong(20, "h0 does not answer", "timed out", "a firewall")
        self.host.accept(namespace_host.LAUNCHER)
        self.host.cut()
        self.wrong(20, "h0 cannot be reached from here", "No route to host")

    def test_missing_ssh_client(self):
        self.wrong(10, "no program ssh here", environment={"PATH": str(self.home)}, place="ssh")

    def test_missing_strait_on_host(self):
        (self.host.home / ".strait/bin").unlink()
        self.wrong(11, "h0 has no strait in ~/.strait/bin", "strait install --hosts")

    def test_other_build_on_host(self):
        program = (runs.BIN / "strait-stage").read_bytes()
        version = self.strait("--version")[1].split()[1].encode()
        self.assertIn(version, program)
        changed = self.host.home / ".strait/changed"
        changed.write_bytes(program.replace(version, version[:-4] + b"beef"))
        changed.chmod(0o755)
        self.starter('exec "$HOME/.strait/changed" "$@"')
        self.wrong(11, "h0 has strait", "beef", version.decode(), "strait install --hosts")

    def test_incompatible_programs_on_host(self):
        folder = self.host.home / ".strait"
        (folder / "bin").unlink()
        (folder / "bin").mkdir()
        program = bytearray((runs.BIN / "strait-stage").read_bytes()[:4096])
        program[18] ^= 0x55  # the processor that it is for
        (folder / "bin/strait-stage").write_bytes(program)
        (folder / "bin/strait-stage").chmod(0o755)
        self.wrong(11, "h0 is of another processor architecture")
        (folder / "bin/strait-stage").unlink()
        (folder / "bin").rmdir()
        (folder / "bin").symlink_to(runs.BIN.resolve())
        # As a host that lacks one of the libraries.
        self.starter(f"cp {STAGE} $HOME/.strait/moved; "
                     "sed -i s/libzmq.so/libzmQ.so/ $HOME/.strait/moved; exec $HOME/.strait/moved")
        self.wrong(11, "h0 lacks a library", "libzmQ.so", "strait install --hosts")

    @hosts.needs_namespaces
    def test_login_scripts_with_output(self):
        shell = self.host.folder / "etc/chatty"
        shell.write_text("#!/bin/sh\necho Welcome to h0\nprintf 'no end '\nexec /bin/sh \"$@\"\n")
        shell.chmod(0o755)
        users = self.host.folder / "etc/passwd"
        users.write_text(users.read_text().replace("/bin/sh", "/run/host/chatty"))
        code, found = self.doctor()
        self.assertEqual(code, 0, found)

    @hosts.needs_namespaces
    def test_home_without_write_permission(self):
        done = self.on_host(self.host, "mount", "-o", "remount,bind,ro", "/home")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.wrong(31, "cannot keep files in", "Read-only file system", 'directory = "..."')

    def test_launcher_behind_nat(self):
        self.starter(f'SSH_CONNECTION="198.51.100.7 1 192.0.2.1 22" exec {STAGE} "$@"')
        self.wrong(10, "h0 sees this machine at 198.51.100.7", "address =")
        self.wrong(10, "hosts.address is 10.1.2.3, which is not an address of this machine", "name one that h0 can reach",
                   settings={"hosts.address": "10.1.2.3"})
        code, found = self.doctor({"hosts.address": "127.0.0.1"})
        self.assertEqual(code, 0, found)

    def test_clock_offset(self):
        source = self.home / "clock.c"
        source.write_text(CLOCK_SHIM)
        shim = self.host.home / ".strait/clock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
        self.starter(f'LD_PRELOAD="$HOME/.strait/clock.so" exec {STAGE} "$@"')
        code, found = self.doctor()
        self.assertEqual(code, 0, found)
        self.assertIn("clock of h0 is 50 minutes behind", found["note", "h0"])

    @hosts.needs_namespaces
    def test_taken_ports(self):
        holder = ("import socket, sys\n"
                  "held = [socket.create_server(('', port)) for port in range(47000, 47003)]\n"
                  "print('held', flush=True); sys.stdin.read()")
        words = self.host.command("python3", "-c", holder)
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
            self.assertEqual(held.stdout.readline(), b"held\n")
            ports = {"hosts.ports": "47000-47002"}
            self.wrong(10, "of its ports 47000-47002 only 0 are free", "hosts.ports", settings=ports)
            code, found = self.doctor({"hosts.ports": "47000-47009"})
            self.assertEqual(code, 0, found)
            self.assertIn("3 of its ports 47000-47009 are taken", found["note", "h0"])
            held.stdin.close()

    def test_too_little_memory_or_disk(self):
        table = [{"name": "h0", "memory": "64KiB"}]
        self.wrong(10, "over memory", "h0", settings={"hosts.list": table}, place="plan")
        self.wrong(30, "its checkpoints take", settings={"checkpoint.keep": 1_000_000})

    def test_recipe_texts_reach_no_shell(self):
        for name in ("-oProxyCommand=touch owned", "h0;touch owned", "$(touch owned)", "h0\ntouch owned"):
            recipe = self.write_recipe("hostile", self.over_ssh({"hosts.list": [name]}))
            self.assertIn("ssh", self.ended(10, "doctor", recipe)[1])
        hostile = "d '\"$(touch owned);`touch owned`\\ "
        table = [{"name": "h0", "directory": f"~/.strait/{hostile}"}]
        code, found = self.doctor({"hosts.list": table})
        self.assertEqual(code, 0, found)
        self.assertTrue((self.host.home / ".strait" / hostile).is_dir())
        self.assertEqual([*self.home.glob("owned"), *self.host.home.rglob("owned")], [])


class LostHosts(hosts.HostsCase):
    """When a host is lost during the start, all processes end within ten seconds."""

    COUNT = 3
    WITHIN = 10
    SETTINGS = {**hosts.HostsCase.SETTINGS, "pipeline.stages": 3, "train.steps": 100_000}
    HOST_SETTINGS = {**hosts.HostsCase.HOST_SETTINGS, "hosts.hold": 120}  # the default

    def lose_host(self, launched, when, look):
        victim = self.hosts[1]
        launched.wait_for(when, lambda: look(victim))
        begun = time.monotonic()
        victim.power_off()
        code = launched.end()
        others = lambda: [one for host in self.hosts if host.process for one in self.processes_on(host)]
        runs.wait_for("the others' end", lambda: not others())
        seconds = time.monotonic() - begun
        print(f"power lost {when}: everybody gone {seconds:.1f} s later")
        self.assertNotEqual(code, 0)
        self.assertIn("h1", launched.output())
        self.assertLess(seconds, runs.scaled_timeout(self.WITHIN), launched.output())

    def begin(self, **more):
        return self.start("vanishing", self.over_ssh(more))

    def command_lines(self, host):
        return self.processes_on(host).values()

    @hosts.needs_namespaces
    def test_host_lost_before_ssh_answers(self):
        self.hosts[1].refuse(namespace_host.LAUNCHER)
        self.lose_host(self.begin(), "before it answered ssh", lambda host: True)

    @hosts.needs_namespaces
    def test_host_lost_before_greeting(self):
        write_starter(self.hosts[1], "exec tail -f /dev/null")
        at_work = lambda host: any("tail" in words for words in self.command_lines(host))
        self.lose_host(self.begin(), "before its first word", at_work)

    @hosts.needs_namespaces
    def test_host_lost_as_agent_starts(self):
        agent = lambda host: [*host.home.glob(".strait/runs/*/logs/agent.log")]
        self.lose_host(self.begin(), "as its agent started", agent)

    @hosts.needs_namespaces
    def test_host_lost_during_transfer(self):
        self.write_model("heavy", weights=True, n_embd=256)
        self.hosts[1].shape(down_megabits=2)
        files = lambda host: [p for p in host.home.glob(".strait/content/**/*") if p.is_file()]
        launched = self.begin(**{"model.path": "heavy", "model.weights": "load"})
        self.lose_host(launched, "while files came", files)

    @hosts.needs_namespaces
    def test_host_lost_as_stage_starts(self):
        stage = lambda host: any(
            "strait-stage" in words and "--agent" not in words for words in self.command_lines(host)
        )
        self.lose_host(self.begin(), "as its stage started", stage)

    def test_waits_for_slow_host(self):
        write_starter(self.hosts[1], f'sleep 12; exec {STAGE} "$@"')
        self.SETTINGS = {**self.SETTINGS, "train.steps": 2}
        self.assertEqual(len(self.train("slow", self.over_ssh()).metrics()), 2)


class Visits(hosts.HostsCase):
    COUNT = 2

    def test_probe_cleans_up(self):
        recipe = self.write_recipe("probed", self.over_ssh())
        self.ok("probe", recipe, "-o", "links.toml", "--seconds", "0.1")
        table = tomllib.loads((self.home / "links.toml").read_text())
        for host in table["hosts"]:
            self.assertGreater(host["flops_per_second"], 1e6)
        for host in self.hosts:
            left = [*host.home.glob(".strait/runs/*")]
            self.assertEqual(left, [], f"{host.name}: {left}")


class FullHost(DoctorCase):
    """A host with an almost full disk."""

    HOST_OPTIONS = {"home_size": "1m"} if hosts.has_namespaces() else {}
    INSTALLED = False

    @hosts.needs_namespaces
    def test_full_disk(self):
        link = f"mkdir $HOME/.strait && ln -s {shlex.quote(str(runs.BIN.resolve()))} $HOME/.strait/bin"
        done = self.on_host(self.host, "sh", "-c", link)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.wrong(30, "its disk is full", "directory =")


if __name__ == "__main__":
    hosts.main()
