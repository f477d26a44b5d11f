"""A run over hosts whose layers are placed badly moves them by itself, by the speeds that it measures."""

import hosts


class Replan(hosts.HostsCase):
    COUNT = 2

    def layers(self, run):
        return [one["chunks"] for one in run.plan()["processes"]]

    def said(self, run):
        return [one["text"] for one in run.events("stage_event") if one["name"] == "replan"]

    @hosts.needs_namespaces
    def test_layers_move_when_that_saves_more_than_it_costs(self):
        settings = {"pipeline.partition": [[0, 2], [3, 3]], "pipeline.replan": True, "train.steps": 100_000,
                    "checkpoint.every": 20, "hosts.restart": 3}
        launched = self.start("moves", self.over_ssh(settings))
        run = launched.run
        launched.at_step(2)
        before = self.layers(run)
        launched.wait_for("the other layout", lambda: self.said(run), 180)
        self.assertRegex(self.said(run)[0], "by measured speeds a step takes .* with another layout")
        launched.wait_for("training to go on", lambda: len(run.events("training")) > 1, 180)
        restart = run.events("restart")[-1]
        self.assertGreaterEqual(restart["from"], 20)
        self.assertEqual(restart["moves"], ["layers and hosts are laid out anew"])
        self.assertNotEqual(self.layers(run), before)
        self.stopped(launched)


if __name__ == "__main__":
    hosts.main()
