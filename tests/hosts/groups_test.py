"""Replicas that share a host train as one: they sum their gradients without links, and the method runs
between hosts, over half of the bytes."""

import os
import signal

import hosts

STEPS = 24
MIDDLE = 8


class Groups(hosts.HostsCase):
    COUNT = 2
    # Four replicas: two on each host. Packets are large against what else goes over links.
    FOUR = {
        "pipeline.stages": 1, "pipeline.replicas": 4, "sync.method": "cocktail", "sync.random": 0.5, "sync.top": 0.5,
        "sync.bits": 8, "train.steps": STEPS, "train.batch": 16, "checkpoint.every": MIDDLE, "checkpoint.keep": 3,
    }

    def sent(self, run, key="sent_bytes"):
        """process -> bytes over links to other replicas, in all steps."""
        sent = {}
        for line in run.metrics():
            for one in line["sync"]:
                sent[one["process"]] = sent.get(one["process"], 0) + one[key]
        return sent

    def planned(self, run, between_hosts):
        """Bytes of a step over links of the method, by the plan."""
        host = {p["name"]: p["host_index"] for p in run.plan()["processes"]}
        return sum(link["forward_bytes"] + link["backward_bytes"]
                   for link in run.plan()["links"]
                   if link["use"] == "replica" and (host[link["connects"]] != host[link["listens"]]) == between_hosts)

    def test_method_runs_between_hosts_over_half_the_bytes(self):
        settings = self.over_ssh(self.FOUR)
        flat = self.train("flat", {**settings, "sync.group": "never"})
        grouped = self.train("grouped", settings)
        self.assertEqual([p.get("group") for p in flat.plan()["processes"]], [None] * 4)
        self.assertEqual([p["group"] for p in grouped.plan()["processes"]], [0, 0, 2, 2])
        self.assertEqual(
            sorted(e["text"] for e in grouped.events("stage_event") if e["name"] == "gradient_sums"),
            [f"stage 0.{r}: gradients of replicas {r // 2 * 2}, {r // 2 * 2 + 1} are summed by shared memory; "
             "2 groups exchange over links" for r in range(4)],
        )
        # By the plan half, and fewer frames; what is sent inside hosts is next to nothing.
        self.assertAlmostEqual(self.planned(grouped, True) / self.planned(flat, True), 0.5, delta=0.05)
        self.assertLess(self.planned(grouped, False), self.planned(grouped, True) / 20)
        # Each of four sends to three others, two of them on the other host.
        sent = {run.path.name: self.sent(run) for run in (flat, grouped)}
        between = sum(sent["flat"].values()) * 2 / 3
        print("sent between hosts: %d bytes by four, %d by two groups" % (between, sum(sent["grouped"].values())))
        self.assertLess(sum(sent["grouped"].values()), 0.6 * between, sent)
        for follower in ("0.1", "0.3"):
            self.assertLess(sent["grouped"][follower], sent["grouped"]["0.0"] / 4, sent)
        # What was forecast for the busiest process, which leads a group.
        offer = next(o for o in grouped.plan()["sync_offers"] if o["method"] == "cocktail")
        consensus = sent["grouped"]["0.1"] / STEPS
        self.assertAlmostEqual((sent["grouped"]["0.0"] / STEPS - consensus) / offer["step_bytes"], 1, delta=0.2)
        losses = [[line["loss"] for line in run.metrics()] for run in (flat, grouped)]
        print("last losses: %.4f by four, %.4f by two groups" % (losses[0][-1], losses[1][-1]))
        self.assertLess(losses[1][-1], losses[1][0] - 0.5)
        self.assertLess(abs(losses[1][-1] - losses[0][-1]), 0.15 * losses[0][-1])
        # One state for each group: every step has compared its members' weights.
        own = {name.split("/")[0] for name in grouped.state(STEPS) if name.startswith("replica-")}
        self.assertEqual(own, {"replica-0", "replica-2"})

    def test_processors_with_avx2_and_avx512_keep_weights_equal_and_others_are_found(self):
        def hosts_with(capability):
            # What libtorch, MKL and oneDNN compute with; where there is no AVX-512 both hosts have AVX2.
            limits = {"ATEN_CPU_CAPABILITY": capability, "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
            return [self.hosts[0].name, {"name": self.hosts[1].name, "environment": limits}]

        for method in ("allreduce", "powersgd", "cocktail"):
            # Every round compares hashes.
            settings = {"pipeline.stages": 1, "pipeline.replicas": 2, "sync.method": method, "train.steps": STEPS}
            self.train(method, self.over_ssh(settings, hosts_with("avx2")))
        _, out, err = self.strait("run", self.write_recipe("forked", self.over_ssh(
            {"pipeline.stages": 1, "pipeline.replicas": 2, "sync.method": "allreduce"}, hosts_with("default"))))
        self.assertIn("hold different bits of", out + err)

    def test_killed_member_ends_the_attempt_and_the_run_resumes_to_same_bits(self):
        settings = self.over_ssh({**self.FOUR, "train.steps": 60})
        reference = self.train("reference", settings)
        launched = self.start("killed", settings)
        launched.at_event("checkpoint")
        stages = [pid for pid, line in self.processes_on(self.hosts[1]).items()
                  if "--agent" not in line and "strait-stage" in line]
        self.assertEqual(len(stages), 2)
        os.kill(stages[-1], signal.SIGKILL)
        self.assertEqual(launched.end(30), 20, launched.output())
        self.assertIn("signal 9", launched.run.outcome()["cause"])
        self.resumed(launched.run)
        self.assertEqual([e for e in launched.run.events("stage_event") if e["name"] == "sync_restarted"], [])
        self.assert_same_bits(reference.learnt(60), launched.run.learnt(60))


if __name__ == "__main__":
    hosts.main()
