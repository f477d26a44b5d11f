"""Hosts that join a run by a token, and the output of `plan --emit commands`."""

import json
import os
import shlex
import signal
import stat
import subprocess

import runs


class Joined:
    """A `strait join` during the test, as on a host of its own."""

    def __init__(self, case, words, name):
        home = case.home / name
        home.mkdir(exist_ok=True)
        self.log = case.home / f"{name}.txt"
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                [str(word) for word in words], cwd=case.home, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, "HOME": str(home)},
            )
        case.started.append(self)

    def end(self, seconds=runs.TIMEOUT):
        return self.process.wait(runs.scaled_timeout(seconds))


def memory_holds(pid, text):
    """Whether what the process may write of its memory holds these bytes. All that it receives goes there."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            span, access = line.split()[:2]
            at, end = (int(number, 16) for number in span.split("-"))
            while access.startswith("rw") and at < end:
                try:
                    memory.seek(at)
                    if text in memory.read(min(end - at, 1 << 26)):
                        return True
                except OSError:
                    break  # of a device, or it was unmapped while we looked
                at += (1 << 26) - len(text)  # a text across two pieces is in the second
    return False


class Joins(runs.RunCase):
    HOSTS = {
        "hosts.backend": "join", "hosts.list": ["alpha", "beta"], "hosts.address": "127.0.0.1", "hosts.restart": 0,
        "checkpoint.home": "all",
    }
    def tokens(self, run):
        return [run.path / "join" / f"{host}.token" for host in range(2)]

    def start_joining(self, name, settings=None):
        launched = self.start(name, {**self.HOSTS, **(settings or {})})
        tokens = self.tokens(launched.run)
        launched.wait_for("both tokens", lambda: all(token.exists() for token in tokens))
        return launched, tokens

    def join(self, token, name):
        return Joined(self, [self.program, "join", token], name)

    def refusal(self, *words, text=None, home=None):
        """(exit code, error line) of a join that fails."""
        done = subprocess.run(
            [self.program, "join", *map(str, words)], cwd=self.home, capture_output=True,
            text=True, input=text, timeout=runs.scaled_timeout(runs.TIMEOUT),
            env={**os.environ, "HOME": str(self.home if home is None else home)})
        errors = [line for line in done.stderr.splitlines() if " error " in line]
        self.assertEqual(len(errors), 1, done.stderr)
        return done.returncode, errors[0]

    def test_emitted_commands_match_bits_of_local_run(self):
        recipe = self.write_recipe("joined", self.HOSTS)
        text = self.ok("plan", recipe, "--emit", "commands")
        commands = [shlex.split(line) for line in text.splitlines() if not line.startswith("#")]
        self.assertEqual(len(commands), 3, text)
        self.assertEqual(commands[0][0], str(self.program))
        launched = self.launch(*commands[0][1:], name="joined")
        tokens = self.tokens(launched.run)
        launched.wait_for("both tokens", lambda: all(token.exists() for token in tokens))
        for token in tokens:
            self.assertEqual(stat.S_IMODE(token.stat().st_mode), 0o600)
            # It is written first, then named.
            launched.wait_for("its name", lambda: str(token.relative_to(self.home)) in launched.output())
        hosts = [Joined(self, words, name) for words, name in zip(commands[1:], ("alpha", "beta"))]
        self.assertEqual(launched.end(), 0, launched.output())
        for host in hosts:
            self.assertEqual(host.end(), 0, host.log.read_text())
        self.assertFalse((launched.run.path / "join").exists())
        local = self.train("local")
        self.assert_same_bits(local.learnt(20), launched.run.learnt(20))

    def test_variables_of_a_host_reach_no_other_host(self):
        secret = "8f3c1d-of-alpha-only"
        launched, tokens = self.start_joining("secret", {
            "hosts.list": [{"name": "alpha", "environment": {"STORE_TOKEN": secret}}, "beta"],
            "train.steps": 100_000})
        secret = secret.encode()
        joined = {name: self.join(token, name) for token, name in zip(tokens, ("alpha", "beta"))}
        launched.at_step(2)
        found = {}
        for name, host in joined.items():
            agent, stage = runs.descendants(runs.processes(), host.process.pid)
            found[name] = [memory_holds(pid, secret) for pid in (host.process.pid, agent, stage)]
        self.assertEqual(found, {"alpha": [True] * 3, "beta": [False] * 3})
        launched.end_by(signal.SIGINT, 0)
        for host in joined.values():
            self.assertEqual(host.end(), 0, host.log.read_text())
        # Nor is anything of it shown where a run goes on with another one.
        again = self.launch("resume", "runs/secret", "--json", "--set",
                            'hosts.list=[{name="alpha", environment={STORE_TOKEN="another"}}, "beta"]')
        again.wait_for("a token", tokens[0].exists)
        again.end_by(signal.SIGINT, 130)
        self.assertIn("hosts.list (its variables)", again.output())
        for text in (secret.decode(), '"another"', "STORE_TOKEN"):
            self.assertNotIn(text, launched.output() + again.output())
        # The recipe and the plan are in the run's own folder, which is closed to other users.
        holders = [path for path in self.home.rglob("*") if path.is_file() and secret in path.read_bytes()]
        expected = [self.home / "secret.toml", launched.run.path / "plan.json", launched.run.path / "recipe.toml"]
        self.assertEqual(sorted(holders), sorted(expected))
        self.assertEqual(stat.S_IMODE(launched.run.path.stat().st_mode), 0o700)

    def test_reports_host_that_never_joins(self):
        launched, tokens = self.start_joining("lonely", {"hosts.join_wait": 8})
        alpha = self.join(tokens[0], "alpha")
        self.assertNotEqual(launched.end(), 0)
        self.assertRegex(launched.output(), r"strait: beta has not joined within 8 s: .*strait join TOKEN")
        alpha.end(20)
        self.assertFalse((launched.run.path / "join").exists())

    def test_replica_rejoins_on_live_host_and_on_one_that_joins_again(self):
        launched, tokens = self.start_joining("again", {
            "pipeline.stages": 1, "pipeline.replicas": 2, "sync.on_loss": "continue",
            "train.steps": 100_000, "hosts.hold": 3})
        run = launched.run
        hosts = [self.join(token, name) for token, name in zip(tokens, ("alpha", "beta"))]
        launched.at_step(2)
        os.kill(run.processes()["0.1"], signal.SIGKILL)
        launched.wait_for("the replica to leave", lambda: len(run.events("replica_left")) == 1)
        code, out, err = self.strait("resume", run.path, "--replica", 1)
        self.assertEqual(code, 0, out + err + launched.output())
        hosts[1].process.kill()
        launched.wait_for("the replica to leave", lambda: len(run.events("replica_left")) == 2)
        hosts[1] = self.join(tokens[1], "beta")
        code, out, err = self.strait("resume", run.path, "--replica", 1)
        self.assertEqual(code, 0, out + err + launched.output())
        launched.at_step(run.metrics()[-1]["step"] + 2)
        launched.end_by(signal.SIGINT, 0)
        for host in hosts:
            self.assertEqual(host.end(), 0, host.log.read_text())

    def test_run_goes_on_with_a_host_that_joins_again(self):
        launched, tokens = self.start_joining("back", {
            "hosts.restart": 1, "train.steps": 120, "checkpoint.every": 5, "hosts.hold": 3})
        hosts = [self.join(token, name) for token, name in zip(tokens, ("alpha", "beta"))]
        launched.at_checkpoint(5)
        hosts[1].process.kill()
        hosts[1] = self.join(tokens[1], "beta")
        self.assertEqual(launched.end(), 0, launched.output())
        for host in hosts:
            self.assertEqual(host.end(), 0, host.log.read_text())
        self.assertEqual(len(launched.run.events("restart")), 1)
        self.assert_same_bits(self.train("local", {"train.steps": 120}).learnt(120), launched.run.learnt(120))

    # Nobody waits for this in a test: whatever ends a run earlier than its timeout was noticed at once.
    LONG_HOLD = {"hosts.hold": 3600, "train.steps": 100_000}

    def training(self, name, settings=None):
        """A run that trains on two joined hosts: (launcher, hosts by name)."""
        launched, tokens = self.start_joining(name, {**self.LONG_HOLD, **(settings or {})})
        joined = {name: self.join(token, name) for token, name in zip(tokens, ("alpha", "beta"))}
        launched.at_step(2)
        return launched, joined

    def test_host_that_leaves_saves_the_run(self):
        launched, joined = self.training("leaves")
        joined["beta"].process.terminate()
        self.assertEqual(launched.end(), 20, launched.output())
        self.assertIn("strait: host beta leaves the run: it was interrupted there", launched.output())
        outcome = launched.run.outcome()
        self.assertEqual((outcome["host"], outcome["checkpoint"]), ("beta", outcome["step"]))
        self.assertEqual(launched.run.checkpoints(), [outcome["step"]])
        for host in joined.values():
            self.assertEqual(host.end(), 20, host.log.read_text())

    def test_host_that_leaves_at_once_is_named(self):
        launched, joined = self.training("hurries")
        for _ in range(2):
            joined["beta"].process.send_signal(signal.SIGINT)
        self.assertEqual(launched.end(), 20, launched.output())
        self.assertIn("host beta", launched.output())
        self.assertIn("interrupted there", launched.output())
        self.assertIn(joined["beta"].end(), (20, 130), joined["beta"].log.read_text())
        self.assertEqual(joined["alpha"].end(), 20, joined["alpha"].log.read_text())

    def test_killed_agent_ends_the_run_at_once(self):
        launched, joined = self.training("killed")
        joined["beta"].process.kill()
        self.assertEqual(launched.end(), 20, launched.output())
        self.assertRegex(launched.output(), r"strait: stage \d\.0 \(host beta\): its host beta is gone: "
                                            r"its agent was killed or has crashed")
        self.assertEqual(joined["alpha"].end(), 20, joined["alpha"].log.read_text())

    def test_replica_of_host_that_leaves_is_evicted(self):
        launched, joined = self.training("fewer", {
            "pipeline.stages": 1, "pipeline.replicas": 2, "sync.on_loss": "continue"})
        joined["beta"].process.terminate()
        launched.at_event("replica_left")
        self.assertEqual(joined["beta"].end(), 130, joined["beta"].log.read_text())
        (left,) = launched.run.events("replica_left")
        self.assertEqual(left["replica"], 1)
        self.assertIn("host beta leaves the run", left["text"])
        launched.at_step(left["step"] + 2)
        launched.end_by(signal.SIGINT, 0)
        self.assertEqual(joined["alpha"].end(), 0, joined["alpha"].log.read_text())

    def test_address_for_hosts_is_checked_before_tokens_are_announced(self):
        recipe = self.write_recipe("nowhere", {**self.HOSTS, "hosts.address": "192.0.2.7"})
        for verb in ("plan", "doctor", "run", "probe"):
            out, err = self.ended(10, verb, recipe)
            self.assertIn("192.0.2.7, which is not an address of this machine", out + err)
            self.assertNotIn("TOKEN", out + err)
        self.assertFalse(self.run_of("nowhere").path.exists())

    def test_interrupt_ends_wait_for_hosts(self):
        launched, _ = self.start_joining("ended")
        launched.signal(signal.SIGINT)
        self.assertEqual(launched.end(20), 130)
        self.assertIn("stopped while hosts were still coming up", launched.output())

    def test_token_is_valid_as_long_as_its_launcher(self):
        kept = {}
        for name in ("gone", "again"):
            launched, tokens = self.start_joining(name)
            kept[name] = self.home / f"{name}.token"
            kept[name].write_bytes(tokens[0].read_bytes())
            launched.signal(signal.SIGINT)
            launched.end(20)
        # The launcher of the second lives again, under other keys.
        at = json.loads(kept["again"].read_text())["endpoint"].rpartition(":")[2]
        ports = {"hosts.ports": f"{at}-{int(at) + 20}"}
        launched, tokens = self.start_joining("again", ports)
        hosts = {name: self.join(token, f"{name}-host") for name, token in kept.items()}
        for host in hosts.values():
            self.assertEqual(host.end(), 12, host.log.read_text())
            (error,) = [line for line in host.log.read_text().splitlines() if " error " in line]
            self.assertRegex(error, r"the launcher at tcp://127\.0\.0\.1:\d+ does not know this host.*"
                                    r"the token is of an earlier launcher")
        launched.signal(signal.SIGINT)
        launched.end(20)

    def test_token_is_for_one_process_of_a_machine_that_can_be_used(self):
        launched, tokens = self.start_joining("once", {"train.steps": 100_000})
        for home, code, words in (
            ("", 10, "the directory ~/.strait needs $HOME, which is not set; set it"),
            ("/dev/null", 31, "cannot keep files in /dev/null/.strait: Not a directory; name another place"),
        ):
            refused = self.refusal(tokens[0], home=home)
            self.assertEqual((refused[0], words in refused[1]), (code, True), refused)
        joined = {name: self.join(token, name) for token, name in zip(tokens, ("alpha", "beta"))}
        launched.at_step(2)
        code, line = self.refusal(tokens[0], home=self.home / "alpha")
        self.assertEqual(code, 10, line)
        self.assertIn("a process of this machine has already joined the run once as host 0", line)
        launched.at_step(launched.run.metrics()[-1]["step"] + 2)
        launched.end_by(signal.SIGINT, 0)
        for host in joined.values():
            self.assertEqual(host.end(), 0, host.log.read_text())

    def test_refuses_invalid_tokens(self):
        launched, tokens = self.start_joining("builds")
        job = json.loads(tokens[0].read_text())
        launched.signal(signal.SIGINT)
        launched.end(20)
        job["build"] = "0.0.1-another"
        code, line = self.refusal("-", text=json.dumps(job))
        self.assertEqual(code, 11, line)
        self.assertRegex(line, r"of build 0\.0\.1-another, but this is build ")
        for text in ("", "rubbish", "[]", "{}", json.dumps({**job, "endpoint": 3})):
            code, line = self.refusal("-", text=text)
            self.assertEqual(code, 11, line)
            self.assertIn("this is not a run token", line)
        code, line = self.refusal("missing.token")
        self.assertEqual(code, 10, line)
        self.assertIn("missing.token: No such file", line)

    def test_emit_reports_missing_settings(self):
        recipe = self.write_recipe("here")
        self.assertIn("give hosts.list", self.ended(10, "plan", recipe, "--emit", "commands")[1])
        self.assertRegex(self.ended(10, "plan", recipe, "--emit", "kubernetes")[1], r"^strait: [^\n]*commands[^\n]*\n$")


if __name__ == "__main__":
    runs.main()
