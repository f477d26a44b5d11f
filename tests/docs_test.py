"""The pages of docs/: the site builds, every command and recipe in them is one that the program takes."""

import html.parser
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import fit
import pictures
import screen

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
STRAIT = os.environ.get("STRAIT_BIN", str(ROOT / "build/release/bin")) + "/strait"
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# A command in a block or in a code span: up to a comment, a pipe, or what follows it.
COMMAND = re.compile(r"(?:^ {4,}|`)(?:\./|venv/bin/)?(strait [a-z][^`\n]*)", re.MULTILINE)
OF_A_CLONE = ("test", "setup")  # of ./strait, which builds
PLACEHOLDERS = re.compile(r"\b[A-Z]{2,}[A-Z-]*\b|\.\.\.|…")


def verbs_and_flags():
    """{"checkpoint copy": its flags, ...}, from --help of all verbs."""
    known, todo = {}, [[]]
    while todo:
        words = todo.pop()
        text = subprocess.run([STRAIT, *words, "--help"], capture_output=True, text=True, check=True).stdout
        known[" ".join(words)] = set(re.findall(r"(?<![\w-])(-{1,2}[a-z][a-z-]*)", text))
        _, _, inner = text.partition("Subcommands:")
        todo += [[*words, verb] for verb in re.findall(r"^  ([a-z]+)  ", inner, re.MULTILINE)]
    return known


def commands_of(page):
    for found in COMMAND.finditer(page.read_text()):
        line = re.split(r"\s+#|\s[|&<>]|;|\s->|,", found[1])[0]
        words = shlex.split(line.replace("'", ""))[1:]
        if words[0] not in OF_A_CLONE:
            yield found[1], words


class Links(html.parser.HTMLParser):
    """What a page loads by itself."""

    def __init__(self):
        super().__init__()
        self.loaded = []

    def handle_starttag(self, tag, attributes):
        at = dict(attributes)
        if tag in ("script", "img", "iframe", "source") or (tag == "link" and at.get("rel") in ("stylesheet", "icon")):
            self.loaded.append(at.get("src") or at.get("href") or "")


class Docs(unittest.TestCase):
    def test_site_builds_and_loads_nothing_from_elsewhere(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, ROOT / "docs/site.py", folder], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            site = pathlib.Path(folder) / "site"
            pages = list(site.rglob("*.html"))
            self.assertGreater(len(pages), len(PAGES))
            for page in pages:
                links = Links()
                links.feed(page.read_text())
                self.assertEqual([one for one in links.loaded if "//" in one], [], page)
            index = (site / "llms.txt").read_text()
            for page in PAGES[1:]:
                self.assertIn(f"(docs/{page.name})", index)
            self.assert_nothing_overflows(site, pages)

    def assert_nothing_overflows(self, site, pages):
        """All pages where they are narrowest; one with tables, code and pictures at all widths, light and dark."""
        if pictures.chromium() is None:
            return
        runs = site / "docs/runs/index.html"
        looks = [(page, 400, False) for page in pages if page.name != "404.html"]  # that one is for servers
        looks += [(runs, width, dark) for width in pictures.WIDTHS for dark in (False, True)]
        with pictures.Browser() as browser:
            for page, width, dark in looks:
                self.assertEqual(pictures.problems(browser, page, width, dark, site), [], f"{page.relative_to(site)} at {width}")

    def test_picture_of_a_terminal_has_what_it_shows_at_the_end(self):
        """Lines above a block that is drawn again in place, as those of strait run, and a coloured word."""
        block = "".join(f"\rstep {step}\x1b[K\r\nloss\x1b[K\x1b[J\x1b[1A\r" for step in (9, 10))
        text = f"Script started\nfirst\r\n{block}\rlasting\x1b[K\r\n\x1b[J\r\x1b[32mstep\x1b[0m < 11\x1b[K\r\nScript done\n"
        with tempfile.TemporaryDirectory() as folder:
            recording = pathlib.Path(folder) / "recording"
            recording.write_bytes(text.encode())
            page = screen.page_of(recording, columns=20, rows=2)
        step = "".join(f'<span style="color:{screen.COLOURS["32"]}">{letter}</span>' for letter in "step")
        self.assertIn(f"<pre>lasting\n{step} &lt; 11\n</pre>", page)

    def test_broken_link_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "repository"
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "build", "runs", "*.cpp", "*.h"))
            page = copy / "docs/install.md"
            page.write_text(page.read_text() + "\n[gone](runs.md#no-such-heading)\n")
            done = subprocess.run([sys.executable, copy / "docs/site.py", folder], capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("no-such-heading", done.stdout + done.stderr)

    def test_commands_have_verbs_and_flags_of_the_program(self):
        known = verbs_and_flags()
        checked = 0
        for page in PAGES:
            for text, words in commands_of(page):
                verb = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0] if words else ""
                with self.subTest(page=page.name, command=text):
                    self.assertIn(verb, known)
                    flags = {word.split("=")[0] for word in words if word.startswith("-") and not PLACEHOLDERS.fullmatch(word)}
                    self.assertLessEqual(flags, known[verb])
                    checked += 1
        self.assertGreater(checked, 100)

    def test_commands_in_blocks_are_accepted(self):
        """Each is run where its recipe and its run are missing: it says that, and not how it is used."""
        numbers = re.compile(r"\bSTEPS?\b|(?<= )N\b|\$RANK")
        with tempfile.TemporaryDirectory() as folder:
            made = 0
            for page in PAGES:
                for found in re.finditer(r"^ {4,}(?:\./|venv/bin/)?(strait [a-z][^\n]*)", page.read_text(), re.MULTILINE):
                    line = re.split(r"\s+#|\s[|&<>]|;", re.sub(r"\[[^][]*\]", "", found[1]))[0]
                    words = shlex.split(numbers.sub("1", line))[1:]
                    if words[0] in OF_A_CLONE or words[:2] == ["run", "recipes/quickstart.toml"]:
                        continue
                    with self.subTest(page=page.name, command=line):
                        done = subprocess.run([STRAIT, *words], cwd=folder, capture_output=True, text=True, timeout=300,
                                              stdin=subprocess.DEVNULL, check=False)
                        self.assertNotIn("; see: strait", done.stderr.replace(STRAIT, "strait"))
                        self.assertNotIn("argument too many", done.stderr)
                        if words[0] in ("explain", "help", "completion"):
                            self.assertEqual(done.returncode, 0, done.stderr)
                        made += 1
            self.assertGreater(made, 40)

    def test_fit_page_is_what_plans_say(self):
        page = (ROOT / "docs/fit.md").read_text()
        for size in ("7B", "32B"):
            rows = fit.rows_of(STRAIT, size)
            parts = [fit.section(rows, size)] + ([fit.four_cards(rows)] if size == "7B" else [])
            for part in parts:
                self.assertIn(part, page, "run: python docs/fit.py")
            for line in fit.off_load(rows).splitlines()[4:]:
                self.assertIn(line + "\n", page, "run: python docs/fit.py")

    def test_recipes_have_keys_of_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            all_keys = pathlib.Path(folder) / "all.toml"
            subprocess.run([STRAIT, "init", "--keys", all_keys], check=True, capture_output=True)
            known, section = set(), ""
            for line in all_keys.read_text().splitlines():
                if found := re.match(r"(?:# )?\[([\w.]+)\]", line):
                    section = found[1] + "."
                    known.add(found[1])
                elif found := re.match(r"(?:# )?(\w+) =", line):
                    known.add(section + found[1])
        blocks = [(page.name, body) for page in PAGES for _, kind, body in FENCE.findall(page.read_text()) if kind == "toml"]
        self.assertGreater(len(blocks), 10)
        for page, body in blocks:
            with self.subTest(page=page, block=body):
                for key in keys_of(tomllib.loads(body)):
                    if not key.startswith(("model.lora.rank_pattern.", "model.lora.alpha_pattern.")):
                        self.assertIn(key, known)


def keys_of(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from keys_of(value, f"{prefix}{key}.")
        else:
            yield prefix + key


if __name__ == "__main__":
    unittest.main()
