"""Makes the site of these pages, with llms.txt: python docs/site.py FOLDER (needs mkdocs-material).

The folder gets pages/ (docs and what they link to) and site/. A broken link or anchor, or a page that the
navigation lacks, ends it.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[[^\]]*\]\(([^)#\s]+)(#[^)\s]*)?\)")


def linked_files(page):
    """Files of the repository that a page links to."""
    for target, _ in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path = (page.parent / target).resolve()
        if path.is_file() and path.is_relative_to(ROOT):
            yield path
        elif not path.is_dir():  # a folder is shown where the repository is
            sys.exit(f"{page.relative_to(ROOT)}: the link {target} leads nowhere")


def stage(pages):
    """Copies docs/, and all that can be reached from there by links."""
    seen, todo = set(), [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        target = pages / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        if path.suffix == ".md":
            todo += linked_files(path)


def pages_of(nav):
    for entry in nav:
        if isinstance(entry, dict):
            for title, inner in entry.items():
                yield title, [page for page in inner]


def summary_of(path):
    """(title, first sentence) of a page."""
    lines = path.read_text().splitlines()
    title = next(line[2:] for line in lines if line.startswith("# "))
    text = " ".join(lines[lines.index("# " + title) + 1 :]).strip()
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    first = re.match(r"[^|`#]*?[.:](?= )", text)
    return title, first[0].rstrip(":") if first else ""


def llms_text(nav):
    """The index for language models: https://llmstxt.org."""
    text = ["# strait", "", "> " + summary_of(ROOT / "README.md")[1]]
    for section, pages in pages_of(nav):
        text += ["", f"## {section}", ""]
        for page in pages:
            title, first = summary_of(ROOT / page)
            text.append(f"- [{title}]({page})" + (f": {first}" if first else ""))
    return "\n".join(text) + "\n"


def main(folder):
    folder = pathlib.Path(folder).resolve()
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    stage(pages)
    config = (ROOT / "docs/mkdocs.yml").read_text()
    nav = yaml.safe_load(config)["nav"]
    listed = {page for _, pages_here in pages_of(nav) for page in pages_here}
    missing = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} - listed
    if missing:
        return f"docs/mkdocs.yml: the navigation lacks {', '.join(sorted(missing))}"
    (pages / "llms.txt").write_text(llms_text(nav))
    (folder / "mkdocs.yml").write_text(config)
    return subprocess.run([sys.executable, "-m", "mkdocs", "build"], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 2 else __doc__)
