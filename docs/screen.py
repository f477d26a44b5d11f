"""What a terminal shows after a program has written to it, as a page: for the pictures of `strait run` and `strait watch`.

A recording is made by: script -q -c "strait watch runs/quickstart" watch.txt
It understands what strait writes: lines, carriage returns, erasing, moving up, the upper left corner, colours.
"""

import html
import pathlib
import re

COLOURS = {"32": "#3fb950", "33": "#d29922", "31": "#f85149", "2": "#8b949e"}
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>strait</title><style>
body { margin: 0; padding: 16px; background: #0d1117; color: #e6edf3 }
pre { margin: 0; font: 15px/17.5px "DejaVu Sans Mono", monospace }
</style><pre>%s</pre></html>
"""
# Control sequences, and pieces of text between them.
PIECE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class Screen:
    def __init__(self, columns=100, rows=30):
        self.columns, self.rows = columns, rows
        self.cells, self.row, self.column, self.colour = {}, 0, 0, ""

    def write(self, text):
        for numbers, command, control, plain in PIECE.findall(text):
            if plain:
                self.put(plain)
            elif control == "\n":
                self.row += 1
            elif control == "\r":
                self.column = 0
            elif command == "m":
                self.colour = COLOURS.get(numbers, "")
            elif command == "K":
                self.erase(lambda row, column: row == self.row and column >= self.column)
            elif command == "J":
                self.erase(lambda row, column: (row, column) >= (self.row, self.column))
            elif command == "A":
                self.row -= int(numbers or 1)
            elif command == "H" or (command == "h" and numbers == "?1049"):
                self.row = self.column = 0
                if command == "h":
                    self.cells.clear()

    def put(self, text):
        for letter in text:
            if self.column == self.columns:
                self.row, self.column = self.row + 1, 0
            self.cells[self.row, self.column] = (letter, self.colour)
            self.column += 1

    def erase(self, gone):
        self.cells = {at: cell for at, cell in self.cells.items() if not gone(*at)}

    def lines(self):
        """The last ones that fit: each a list of (letter, colour)."""
        last = max((row for row, _ in self.cells), default=-1)
        for row in range(max(0, last + 1 - self.rows), last + 1):
            width = max((column + 1 for at, column in self.cells if at == row), default=0)
            yield [self.cells.get((row, column), (" ", "")) for column in range(width)]

    def page(self):
        text = ""
        for line in self.lines():
            for letter, colour in line:
                text += f'<span style="color:{colour}">{html.escape(letter)}</span>' if colour else html.escape(letter)
            text += "\n"
        return PAGE % text


def page_of(recording, columns=100, rows=30):
    """The page of what is shown at the end of a recording, which begins and ends with a line of `script`. One of a program
    that still runs ends anywhere."""
    text = pathlib.Path(recording).read_bytes().decode(errors="replace")
    text = re.sub(r"^Script started[^\n]*\n|\s*\nScript done[^\n]*\n?$", "", text)
    screen = Screen(columns, rows)
    screen.write(text)
    return screen.page()
