"""The report of a run as people see it: in Chromium, at the widths of a phone and of a screen, light and dark. Also the
report that a run has while it trains.
"""

import signal
import sys

import runs

sys.path.insert(0, str(runs.ROOT / "docs"))
import pictures

# Replicas over links of a known rate, so that the page has all that it can have.
SETTINGS = {
    "pipeline.replicas": 2,
    "hosts.simulate.rate": "200Mbit/s",
    "checkpoint.every": 3,
    "train.steps": 8,
}


class ReportPage(runs.RunCase):
    def test_nothing_overflows_and_nothing_is_requested(self):
        if pictures.chromium() is None:
            self.skipTest("there is no chromium in PATH")
        page = self.train("pages", SETTINGS).path / "report.html"
        text = page.read_text()
        for part in ("raw on the same links", "Measured", '"sync"', "Load of links", "Bits a value"):
            self.assertIn(part, text)
        bad = self.home / "bad.html"
        bad.write_text('<div style="width:300px"><p style="width:500px">a</p></div><img src="x.png"><svg width="50" '
                       'height="40"><text x="40" y="20">a long text</text><text x="30" y="22">b</text></svg>')
        with pictures.Browser() as browser:
            for width in (400, 1400):
                for dark in (False, True):
                    self.assertEqual(pictures.problems(browser, page, width, dark), [], f"{width} pixels")
            blind = "\n".join(pictures.problems(browser, bad, 400, False))
        for sentence in ("leaves DIV", "leaves its chart", "touches", "the page is 5", "it requests file:"):
            self.assertIn(sentence, blind)

    def test_report_is_written_at_checkpoints(self):
        launched = self.start("live", {"checkpoint.every": 2, "train.steps": 100000})
        page = launched.run.path / "report.html"
        launched.wait_for(
            "a report during training",
            lambda: page.exists() and "Training; written after step" in page.read_text(),
        )
        self.assertIn('"checkpoint","checkpoint"', page.read_text())
        launched.signal(signal.SIGINT)
        self.assertEqual(launched.end(), 0)
        self.assertIn("Ended at step", page.read_text())


if __name__ == "__main__":
    runs.main()
