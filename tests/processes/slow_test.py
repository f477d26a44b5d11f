"""A link that is slower than the links like it is named, with its figure, while the run goes on; threads
that wait for each other take no core from others."""

import os
import pathlib
import signal

import runs

LINK = "boundary 0.0>1.0"


class Slow(runs.RunCase):
    def test_slow_link_is_named_within_twenty_steps(self):
        settings = {"pipeline.stages": 3, "train.steps": 100_000, "hosts.simulate.rate": "3Mbit/s",
                    "hosts.simulate.link": LINK}
        launched = self.start("run", settings)
        run = launched.run
        slow = lambda: [e for e in run.events("stage_event") if e["name"] == "slow"]
        launched.wait_for("the slow link to be named", slow)
        steps = run.metrics()[-1]["step"]
        self.assertLessEqual(steps, 20)
        said = slow()[0]["text"]
        self.assertRegex(said, rf"^{LINK} carries [23](\.\d+)? Mbit/s from stage [01].0, where links like it carry ")
        launched.wait_for("the console to show it", lambda: said in launched.output())
        self.assertRegex(self.ok("status", "runs/run"), rf"slow: {LINK} carries [23](\.\d+)? Mbit/s from stage")
        launched.end_by(signal.SIGTERM, 0)
        for one in slow():
            self.assertIn(LINK, one["text"])
        print(f"named after {steps} steps: {said}")

    def test_spins_of_waiting_threads_are_bounded_unless_the_user_sets_them(self):
        known = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
        bare = {name: value for name, value in os.environ.items() if name not in known}
        for own, expected in (({}, "GOMP_SPINCOUNT=3000"), ({"GOMP_SPINCOUNT": "1000"}, "GOMP_SPINCOUNT=1000")):
            name = f"waits-{len(own)}"
            recipe = self.write_recipe(name, {"pipeline.stages": 1, "train.steps": 100_000})
            launched = self.launch("run", recipe, name=name, env={**bare, **own})
            launched.at_step(1)
            pid = launched.run.events("connected")[0]["pid"]
            words = pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0")
            kept = [word for word in words if word.split("=")[0] in known]
            self.assertEqual(kept, [expected] if own else [expected, "KMP_BLOCKTIME=1"])
            launched.end_by(signal.SIGTERM, 0)

    def test_plan_says_that_one_link_alone_is_simulated(self):
        settings = {"pipeline.stages": 3, "hosts.simulate.rate": "3Mbit/s"}
        for link, says in ((LINK, f"only {LINK} is simulated"), (None, "every link is simulated")):
            out = self.ok("plan", self.write_recipe("one", {**settings, "hosts.simulate.link": link}))
            self.assertIn(f"\n{says}, in each direction: 3 Mbit/s", out)
            self.assertEqual(out.count("CURVE, simulated"), 1 if link else out.count("CURVE"), out)
            self.assertRegex(out, rf"{LINK} +CURVE, simulated")
            self.assertEqual("shared memory" in out, link is not None, out)


if __name__ == "__main__":
    runs.main()
