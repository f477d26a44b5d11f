"""Files are sent to hosts that lack them, and checkpoints are downloaded from hosts."""

import array
import json
import math
import os
import random
import re
import signal

import hosts
import runs


class Shipping(hosts.HostsCase):
    COUNT = 3
    # Two checkpoints: the first and the last come home whoever is faster, others may be passed over.
    TRAINED = {"pipeline.stages": 3, "train.steps": 6, "checkpoint.every": 3}
    learnt = None

    def setUp(self):
        super().setUp()
        # Three MiB a layer, so that a part of the file is less than all of it.
        folder = self.write_model("wide", n_layer=4, n_embd=256)
        config = json.loads((folder / "config.json").read_text())
        some = array.array("f", ((byte - 128) / 3000 for byte in random.Random(1).randbytes(99991)))
        tensors = {}
        for at, (name, shape) in enumerate(runs.gpt2_shapes(config).items()):
            values = (some[at:] + some * math.ceil(math.prod(shape) / len(some)))[: math.prod(shape)]
            tensors[name] = ("F32", shape, values.tobytes())
        runs.write_safetensors(folder / "model.safetensors", tensors)
        self.WEIGHTS = {**self.TRAINED, "model.path": "wide", "model.weights": "load"}

    def expected(self):
        """What WEIGHTS learns on this machine, in one process, which is what any number of them learns."""
        if not self.learnt:
            Shipping.learnt = self.train("alone", {**self.WEIGHTS, "pipeline.stages": 1}).learnt(6)
        return self.learnt

    def content(self, host):
        """Content store of a host: size of the file -> bytes present."""
        found = {}
        for data in (host.home / ".strait" / "content").glob("*/data"):
            status = data.stat()
            found[status.st_size] = status.st_blocks * 512
        return found

    def test_delivered_files_give_same_bits(self):
        run = self.train("apart", self.over_ssh(self.WEIGHTS))
        self.assert_same_bits(self.expected(), run.learnt(6))
        self.assertEqual(run.checkpoints(), [3, 6])
        weights = (self.home / "wide" / "model.safetensors").stat().st_size
        rows = next((self.home / "runs" / "apart").rglob("train*.safetensors")).stat().st_size
        for host in self.hosts:
            there = self.content(host)
            self.assertIn(weights, there)
            self.assertLess(there[weights], weights, "only the own layers travel")
        ends, middle = (self.hosts[0], self.hosts[2]), self.hosts[1]
        for host in ends:
            self.assertIn(rows, self.content(host))
        self.assertNotIn(rows, self.content(middle))
        # Each host keeps its own shards, and those of the same steps.
        for number, host in enumerate(self.hosts):
            shards = sorted(path.name for path in host.home.rglob("checkpoints/step-*/*.safetensors"))
            own = f"stage-{number}.replica-0"
            self.assertEqual(shards, [f"{own}.safetensors"] * 2 + [f"{own}.weights.safetensors"] * 2)
        # What a host has it is not sent again.
        before = [self.content(host) for host in self.hosts]
        self.train("again", self.over_ssh(self.WEIGHTS))
        self.assertEqual([self.content(host) for host in self.hosts], before)

    def test_report_shows_a_measured_step_at_checkpoints(self):
        """The latest steps of all traces are fetched from the hosts, after a restart those of the new start."""
        launched = self.start("live", self.over_ssh(
            {"pipeline.stages": 3, "train.steps": 100_000, "checkpoint.every": 40, "hosts.restart": 1}))
        run = launched.run
        launched.wait_for("a measured step", run.measured_step)
        self.assertEqual([row["process"] for row in run.measured_step()["rows"]], [f"stage {i}.0" for i in range(3)])
        self.assertTrue(all(row["lanes"]["compute"] for row in run.measured_step()["rows"]))
        traces = list((run.path / "logs").glob("?.0.trace.json"))
        steps = [file.read_text().count('"name":"update"') for file in traces]
        self.assertTrue(all(1 < count <= 9 for count in steps), steps)
        print("bytes of a trace of the latest steps:", [file.stat().st_size for file in traces])
        (victim,) = (pid for pid, line in self.processes_on(self.hosts[1]).items()
                     if "--agent" not in line and "strait-stage" in line)
        os.kill(victim, signal.SIGKILL)
        launched.wait_for("training to go on", lambda: len(run.events("training")) > 1)
        start = run.events("training")[-1]["from"]
        launched.wait_for("a step of the new start", lambda: run.measured_step()["step"] > start)
        launched.end_by(signal.SIGINT, 0)

    def test_replicas_get_their_weights_from_each_other(self):
        replicas = {
            **self.WEIGHTS, "pipeline.stages": 1, "pipeline.replicas": 3, "sync.method": "allreduce", "train.batch": 12,
        }
        local = self.train("local-replicas", replicas)
        out, err = self.ended(0, "run", self.write_recipe("apart", self.over_ssh(replicas)))
        self.assert_same_bits(local.learnt(6), self.run_of("apart").learnt(6))
        weights = (self.home / "wide" / "model.safetensors").stat().st_size
        sent = float(re.search(r"sent ([0-9.]+) MB from here", out + err).group(1)) * 1e6
        self.assertLess(sent, 2 * weights, out + err)
        for host in self.hosts:
            self.assertGreaterEqual(self.content(host)[weights], weights // 2)

    def test_adapter_and_weights_of_a_run_at_other_paths_on_each_host(self):
        apart = [{"name": host.name, "directory": f"~/.strait/own-{n}"} for n, host in enumerate(self.hosts)]
        self.train("first", self.WEIGHTS)
        tuned = {**self.WEIGHTS, "model.weights": "runs/first", "model.lora.targets": ["c_attn"]}
        local = self.train("tuned", tuned)
        self.assert_same_bits(local.learnt(6), self.train("tuned-apart", self.over_ssh(tuned, apart)).learnt(6))
        self.ok("export", "runs/tuned", "adapter")
        again = {**self.WEIGHTS, "model.weights": "runs/first", "model.adapter": "adapter"}
        local = self.train("again", again)
        self.assert_same_bits(local.learnt(6), self.train("again-apart", self.over_ssh(again, apart)).learnt(6))

    def test_resume_fetches_shards_from_their_host(self):
        run = self.train("apart", self.over_ssh(self.WEIGHTS))
        self.rewind_run(run, 3)
        (run.path / "checkpoints" / "step-3" / "stage-1.replica-0.safetensors").unlink()
        self.assertIn("fetched the rest from h1", self.ok("resume", "runs/apart", "--set", 'hosts.list=["h2", "h0"]'))
        self.assert_same_bits(self.expected(), run.learnt(6))
        self.damaged_shard_is_fetched_again(run)

    def damaged_shard_is_fetched_again(self, run):
        """One flipped bit; then in the copy on the host, too."""
        shard = run.path / "checkpoints" / "step-6" / "stage-1.replica-0.weights.safetensors"
        good = shard.read_bytes()
        bad = good[:-1] + bytes([good[-1] ^ 1])
        shard.write_bytes(bad)
        out = self.resumed(run)
        self.assertRegex(out, 'stage-1.replica-0.weights.safetensors: tensor ".*" is damaged')
        self.assertRegex(out, "fetched the rest from h[02](?s:.*)is complete")
        self.assertEqual(shard.read_bytes(), good)
        copies = [path for host in self.hosts for path in host.home.rglob(f"checkpoints/step-6/{shard.name}")]
        for copy in [shard, *copies]:
            copy.write_bytes(bad)
        before = self.state(run)
        _, err = self.ended(32, "resume", "runs/apart")
        self.assertRegex(err, "could not be fetched again: .*has changed since it was written(?s:.*)nothing was changed")
        self.assertEqual(self.state(run), before)

    def here(self, run):
        """Names of the files of the newest checkpoint on the launcher's machine."""
        return sorted(path.name for path in (run.path / "checkpoints" / "step-6").glob("*.safetensors"))

    @hosts.needs_namespaces
    def test_what_comes_home(self):
        weights = [f"stage-{n}.replica-0.weights.safetensors" for n in range(3)]
        only_last = {**self.WEIGHTS, "checkpoint.every": 0}
        for home, expected in {"auto": weights, "weights": weights, "none": []}.items():
            with self.subTest(home=home):
                # The weights of a stage take a second, so that its state cannot be home before them.
                for host in self.hosts:
                    host.shape(up_megabits=40)
                settings = {**only_last, "checkpoint.home": home}
                run = self.train(home, self.over_ssh(settings))
                self.assertEqual(self.here(run), expected)
                (said,) = [one for one in run.events("stage_event") if one["name"] == "on_hosts"]
                self.assertRegex(said["text"], "of checkpoint 6 .* stay on h0, h1, h2, where")
                for host in self.hosts:
                    host.shape()
                code, out, err = self.strait("status", f"runs/{home}")
                words = r"6 \(its weights, the rest on hosts\)" if expected else r"6 \(on hosts\)"
                self.assertRegex(out, words)
                words = ["generate", f"runs/{home}", "--prompt", "a", "--max-tokens", "2"]
                _, err = self.ended(0 if expected else 10, *words)
                if not expected:
                    self.assertRegex(err, 'stay on its hosts.*strait resume runs/none')
                # A resume needs the rest, and fetches it.
                self.assertIn("fetched the rest", self.ok("resume", f"runs/{home}", "--set", "checkpoint.home=\"all\""))
                self.assert_same_bits(self.expected(), run.learnt(6))

    def state(self, run):
        """What a later resume depends on, here and on the hosts."""
        files = [run.path / name for name in ("plan.json", "recipe.toml", "metrics.jsonl")]
        files += (run.path / "checkpoints").glob("*/*")
        for host in self.hosts:
            files += host.home.rglob("checkpoints/step-*/*")
        return {str(file): runs.hash_of(file) for file in files}

    @hosts.needs_namespaces
    def test_older_checkpoint_needs_word_of_user_while_host_is_down(self):
        run = self.train("apart", self.over_ssh(self.WEIGHTS))
        (run.path / "checkpoints" / "step-6" / "stage-1.replica-0.safetensors").unlink()
        before = self.state(run)
        self.hosts[1].power_off()
        without = ["--set", 'hosts.list=["h2", "h0"]']
        _, err = self.ended(20, "resume", "runs/apart", *without)
        self.assertRegex(err, "checkpoint 6 cannot be used.*h1")
        self.assertRegex(err, r"nothing was changed.*strait resume runs/apart --from 3 \(it has: 6, 3\)")
        self.assertEqual(self.state(run), before)
        # Nor does a start that fails change anything, whatever it was to go on from.
        self.ended(20, "resume", "runs/apart", "--from", "3")
        self.assertEqual(self.state(run), before)
        out = self.resumed(run, "--from", "3", *without)
        self.assertIn("resuming from step 3", out)
        self.assert_same_bits(self.expected(), run.learnt(6))

    @hosts.needs_namespaces
    def test_skipped_download_is_completed_by_resume(self):
        settings = {**self.WEIGHTS, "train.steps": 2, "checkpoint.every": 0}
        local = self.train("local", settings)
        for host in self.hosts:
            host.shape(up_megabits=4)
        launched = self.start("apart", self.over_ssh(settings))
        downloading = "downloading checkpoint 2, .* MB to go; one more Ctrl-C leaves it"
        launched.wait_for("what is waited for", lambda: re.search(downloading, launched.output()))
        launched.end_by(signal.SIGINT, 0)
        self.assertRegex(launched.output(), "MB of checkpoint 2 stay on the hosts")
        (failed,) = [one for one in launched.run.events("stage_event") if one["name"] == "download_failed"]
        self.assertIn("stay on the hosts", failed["text"])
        # Neither does who resumes.
        again = self.launch("resume", "runs/apart")
        again.wait_for("what is waited for", lambda: re.search(downloading, again.output()))
        again.end_by(signal.SIGINT, 130)
        self.assertIn("not resumed: ", again.output())
        for host in self.hosts:
            host.shape()
        out = self.resumed(launched.run)
        self.assertIn("fetched the rest", out)
        self.assertIn("is complete", out)
        self.assert_same_bits(local.learnt(2), launched.run.learnt(2))


if __name__ == "__main__":
    hosts.main()
