"""The report of a run as people see it: in Chromium, at the widths of a phone and of a screen, light and dark. Also the
report that a run has while it trains.
"""

import json
import os
import signal
import sys
import time

import runs

sys.path.insert(0, str(runs.ROOT / "docs"))
import pictures

# Replicas over links of a known rate, so that the page has all that it can have.
SETTINGS = {"pipeline.replicas": 2, "hosts.simulate.rate": "200Mbit/s", "checkpoint.every": 3, "train.steps": 8}


class ReportPage(runs.RunCase):
    def test_nothing_overflows_and_nothing_is_requested(self):
        if pictures.chromium() is None:
            self.skipTest("there is no chromium in PATH")
        page = self.train("pages", SETTINGS).path / "report.html"
        text = page.read_text()
        for part in ("raw on the same links", "Measured", '"sync"', "Load of links", "Bits a value", '"Map"', "TFLOP/s"):
            self.assertIn(part, text)
        self.train("more", {**SETTINGS, "train.steps": 5})
        self.ok("compare", "pages", "more", "--page", "both.html")
        wide = self.home / "wide.html"
        wide.write_text(self.with_many_hosts(text))
        bad = self.home / "bad.html"
        bad.write_text('<div style="width:300px"><p style="width:500px">a</p></div>'
                       '<div style="width:60px;overflow:hidden;white-space:nowrap">a text that is hidden</div><img src="x.png"><svg width="50" '
                       'height="40"><text x="40" y="20">a long text</text><text x="30" y="22">b</text></svg>')
        with pictures.Browser() as browser:
            for width in pictures.WIDTHS:
                for dark in (False, True):
                    for shown in (page, self.home / "both.html", wide):
                        found = pictures.problems(browser, shown, width, dark)
                        self.assertEqual(found, [], f"{shown.name} at {width} pixels")
            blind = "\n".join(pictures.problems(browser, bad, 400, False))
        for sentence in ("leaves DIV", "is cut at 60", "leaves its chart", "touches", "the page is 5", "it requests file:"):
            self.assertIn(sentence, blind)

    def data_of(self, text):
        """Where a page has what it draws, and that."""
        begin, end = text.index('id="data">') + len('id="data">'), text.index("</script>", text.index('id="data">'))
        return begin, end, json.loads(text[begin:end])

    def with_many_hosts(self, text):
        """The page with a map of two pipelines over 32 hosts each."""
        begin, end, data = self.data_of(text)
        links = next(one for one in data["sections"] if one["title"] == "Links")["figures"]
        nodes = [[f"host-{i}.of-a-long-domain.example", f"stage {i % 32}.{i // 32}", i // 32] for i in range(64)]
        edges = [edge for i in range(63) if i != 31 for edge in
                 ([i, i + 1, "forward", 1.53e6 * i, 1.25e8], [i + 1, i, "backward", None, 1.25e8])]
        edges += [[i, i + 32, "replicas", 2e6, 1.25e7] for i in range(32)]
        links[0].update(nodes=nodes, edges=edges)
        return text[:begin] + json.dumps(data).replace("<", "\\u003c") + text[end:]

    def test_report_is_written_at_checkpoints(self):
        launched = self.start("live", {"checkpoint.every": 20, "train.steps": 100000})
        page = launched.run.path / "report.html"
        launched.wait_for("a report during training, with a measured step", launched.run.measured_step)
        self.assertTrue(all(row["lanes"] for row in launched.run.measured_step()["rows"]))
        phases = lambda: [one["phase"] for one in launched.run.status()["processes"] if "phase" in one]
        launched.wait_for("processes that say what they do", phases)
        self.assertEqual([one for one in phases() if "%" in one and not one.startswith("checkpoint")], [])
        self.assertIn("Training; written after step", page.read_text())
        self.assertIn('"checkpoint","checkpoint"', page.read_text())
        launched.signal(signal.SIGINT)
        self.assertEqual(launched.end(), 0)
        self.assertIn("Ended at step", page.read_text())

    def test_measured_step_is_of_one_start_of_the_run(self):
        launched = self.start("restarted", {"checkpoint.every": 100, "train.steps": 100000, "hosts.restart": 2})
        run = launched.run
        launched.wait_for("a measured step", run.measured_step)
        lost = time.time()
        os.kill(run.stages()[1], signal.SIGKILL)
        launched.wait_for("training to go on", lambda: len(run.events("training")) > 1)
        training = run.events("training")[-1]
        restarted = next(e["time"] for e in run.events() if e["event"] == "started" and e["generation"] == 2)
        # If a process kept the trace of the former start, a step would show its lanes from there.
        for file in (run.path / "logs").glob("*.trace.json"):
            trace = json.loads(file.read_text())
            zero = trace["otherData"]["unix_microseconds_at_zero"]
            first = min(one["ts"] for one in trace["traceEvents"] if "ts" in one)
            self.assertGreater((zero + first) / 1e6, restarted, file.name)
        launched.wait_for("a step of the new start", lambda: run.measured_step()["step"] > training["from"])
        measured = run.measured_step()
        self.assertEqual([row["process"] for row in measured["rows"]], ["stage 0.0", "stage 1.0"])
        self.assertTrue(all(row["lanes"]["compute"] for row in measured["rows"]))
        self.assertLess(measured["seconds"], training["time"] - lost, "one step, and not the restart")
        launched.end_by(signal.SIGINT, 0)


if __name__ == "__main__":
    runs.main()
