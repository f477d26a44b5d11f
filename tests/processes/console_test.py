"""What a person sees of a run: a terminal of some width with `strait run` in it, to the end of the run, to Ctrl-C and to a failure."""

import os
import pathlib
import re
import select
import signal
import sys
import time

import runs

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "hosts"))
import terminal  # noqa: E402

SEQUENCE = re.compile(r"\x1b\[(\d*)(;\d+)*([A-Za-z])")


class Screen:
    """The rows that a terminal of this width has after a text."""

    def __init__(self, columns):
        self.columns, self.rows, self.row, self.column = columns, [""], 0, 0

    def write(self, text):
        for piece in re.split(r"(\x1b\[[\d;]*[A-Za-z])", text):
            if found := SEQUENCE.match(piece):
                self.sequence(found[3], int(found[1] or 1))
                continue
            for one in piece:
                self.character(one)
        return self

    def character(self, one):
        if one == "\r":
            self.column = 0
        elif one == "\n":
            self.down()
        else:
            assert one >= " ", repr(one)
            if self.column == self.columns:
                self.down()
                self.column = 0
            line = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = line[: self.column] + one + line[self.column + 1 :]
            self.column += 1

    def down(self):
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")

    def sequence(self, kind, number):
        if kind == "A":
            self.row = max(0, self.row - number)
        elif kind in "KJ":
            self.rows[self.row] = self.rows[self.row][: self.column]
            if kind == "J":
                del self.rows[self.row + 1 :]
        else:
            assert kind == "m", kind


class Console(runs.RunCase):
    SETTINGS = {**runs.RunCase.SETTINGS, "data.hold_out": 0.1, "train.eval_every": 20, "train.steps": 60}
    BAR = re.compile("[█░]{5}")

    def shown(self, columns, settings=None, **environment):
        recipe = self.write_recipe(f"run{len(self.started)}-{columns}", settings)
        environment = {"TERM": "xterm", "NO_COLOR": "", **environment}
        words = ["env", *(f"{name}={value}" for name, value in environment.items()), self.program, "run", recipe]
        screen = terminal.Terminal(words, self.home, columns=columns)
        self.addCleanup(screen.end)
        self.started.append(screen)
        screen.columns = columns
        return screen, self.run_of(recipe[:-5])

    def rest(self, screen, code):
        """The rows at the end, when the terminal is as it was."""
        deadline = time.monotonic() + runs.scaled_timeout(runs.TIMEOUT)
        text = b""
        while True:
            ended = screen.process.poll() is not None
            while select.select([screen.side], [], [], 0.05)[0]:
                text += os.read(screen.side, 65536)
            if ended:
                break
            self.assertLess(time.monotonic(), deadline, screen.text + text.decode(errors="replace"))
        screen.text += text.decode(errors="replace")
        self.assertEqual(screen.process.returncode, code, screen.text)
        self.assertTrue(screen.as_before())
        rows = Screen(screen.columns).write(screen.text).rows
        self.assertEqual([row for row in rows if self.BAR.search(row)], [], "a block was left")
        self.assertNotIn("\x1b[?25l", screen.text, "the cursor is never hidden")
        return rows

    def assert_few(self, rows, columns):
        """The last lines are at most twelve. One that is wider goes on in the next row, if its next word does not fit."""
        goes_on = lambda before, row: row.startswith(" ") and len(before) + 1 + len(row.split()[0]) > columns
        lines = sum(1 for before, row in zip([""] + rows, rows) if row and not goes_on(before, row))
        self.assertLessEqual(lines, 12, "\n".join(rows))
        self.assertGreater(lines, 3)

    def test_block_is_replaced_by_the_summary(self):
        for columns, replicas in ((80, 1), (200, 2)):
            screen, run = self.shown(columns, {"pipeline.replicas": replicas})
            rows = self.rest(screen, 0)
            self.assertRegex(screen.text, "\x1b\\[32m[█░]+\x1b\\[0m +\\d+ %")
            blocks = [piece for piece in re.split("\x1b\\[J", screen.text) if self.BAR.search(piece)]
            self.assertTrue(blocks)
            for piece in blocks:
                lines = piece[self.BAR.search(piece).start() :].split("\n")
                for line in lines:
                    self.assertLess(len(SEQUENCE.sub("", line).rstrip("\r")), columns, line)
            self.assertRegex(screen.text, r"loss [\d.]+ [▁▂▃▄▅▆▇█ ]+ · lr")
            last = max(i for i, row in enumerate(rows) if row.startswith("checkpoint at step 60"))
            closing = [row for row in rows[last + 1 :] if row]
            self.assertTrue(closing[0].startswith("step 60/60 · loss "), closing)
            self.assert_few(closing, columns)
            for label in ("sent ", "results ", "memory ", "forecast ", "try ", "export "):
                self.assertEqual(len([row for row in closing if row.startswith(label)]), 1, closing)
            self.assertTrue(any("evaluation at step 40" in row for row in rows[:last]))

    def test_no_colours_where_they_are_not_wanted(self):
        screen, _ = self.shown(80, {"train.steps": 20}, NO_COLOR="1")
        self.rest(screen, 0)
        self.assertNotRegex(screen.text, "\x1b\\[[0-9;]*m")
        recipe = self.write_recipe("piped", {"train.steps": 4})
        self.assertNotIn("\x1b", self.ok("run", recipe))
        self.assertIn("\x1b[2mcheckpoint at step 8\x1b[0m",
                      self.ok("resume", "piped", "--set", "train.steps=8", "--color", "always"))
        self.assertNotIn("\x1b", self.ok("status", "piped"))

    def test_ctrl_c_and_a_failure_leave_no_block(self):
        endless = {"train.steps": 100_000, "train.eval_every": 0}
        screen, run = self.shown(80, endless)
        screen.read_until(lambda text: self.BAR.search(text))
        screen.resize(24, 50)
        # A second later at the latest it has the new width.
        narrow = screen.read_until(lambda text: len(re.findall("step \\d+/100000", text)) > 30)
        late = narrow[len(narrow) // 2 :]
        rows = Screen(1000).write(late[late.index("\x1b[J") :]).rows
        self.assertTrue(any("step " in row for row in rows))
        self.assertLess(max(map(len, rows)), 50, rows)
        screen.type("\x03")
        rows = self.rest(screen, 0)
        self.assertTrue(any("stopped on request after step" in row for row in rows), rows)
        last = max(i for i, row in enumerate(rows) if row.startswith("checkpoint at step "))
        self.assert_few(rows[last + 1 :], 50)
        screen, run = self.shown(80, endless)
        screen.read_until(lambda text: self.BAR.search(text))
        os.kill(run.stages()[1], signal.SIGKILL)
        rows = self.rest(screen, 20)
        self.assert_few(rows[rows.index("training 100000 steps") + 1 :], 80)
        self.assertTrue(any(row.startswith("again ") for row in rows), rows)
        self.assertIn("\x1b[1;31mstrait: stage 1.0", screen.text)


if __name__ == "__main__":
    runs.main()
