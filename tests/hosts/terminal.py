"""A terminal with a program in it, as a person has one: it can be read, typed into, resized and
closed.

Not a test itself.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time


class Terminal:
    def __init__(self, words, folder, rows=30, columns=100):
        self.side, inner = pty.openpty()
        self.text = ""
        self.resize(rows, columns, tell=False)
        self.before = termios.tcgetattr(inner)
        self.process = subprocess.Popen(
            [str(word) for word in words], cwd=folder, stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.inner = inner

    def resize(self, rows, columns, tell=True):
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def type(self, text):
        os.write(self.side, text.encode())

    def read_until(self, wanted, seconds=60):
        """Everything up to and with the first text that `wanted` finds in what came since."""
        deadline = time.monotonic() + seconds
        new = ""
        while not wanted(new):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.side], [], [], left)[0]:
                raise AssertionError(f"timed out after {seconds} s; the terminal shows:\n{new!r}")
            try:
                new += os.read(self.side, 65536).decode(errors="replace")
            except OSError:  # no process has it open any more
                raise AssertionError(f"the program left; it said:\n{new!r}") from None
        self.text += new
        return new

    def as_before(self):
        """Whether the program left the terminal as it was."""
        return termios.tcgetattr(self.inner) == self.before

    def end(self):
        """Kills the program if it runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def close(self):
        """As when its window is closed or the connection to it is lost."""
        for end in (self.inner, self.side):
            if end is not None:
                os.close(end)
        self.inner = self.side = None

    def detach(self):
        """Our own hold of the inside: the kernel tells the program when the outside closes."""
        os.close(self.inner)
        self.inner = None
