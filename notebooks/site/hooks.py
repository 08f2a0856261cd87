"""What the pages of the site take from elsewhere, so that nothing is written twice.

- `{{ guide: TITLE }}`: a section of the guide, notebooks/README.md; `{{ inside: TITLE }}`: of bfcviz/README.md.
- `{{ draw: NAME of VARIABLE }}`: a picture of a heap or a trace, after the Python blocks above it on the page have run.
"""

import contextlib
import io
import os
import posixpath
import re
import tempfile
from pathlib import Path

from mkdocs.structure.files import File

SITE = Path(__file__).parent
NOTEBOOKS = SITE.parent
TEXTS = {
    "guide": (NOTEBOOKS / "README.md").read_text(encoding="utf-8"),
    "inside": (NOTEBOOKS.parent / "bfcviz" / "README.md").read_text(encoding="utf-8"),
}
DIRECTIVE = re.compile(r"^\{\{ (guide|inside|draw): (.*) \}\}$", re.MULTILINE)
BLOCK = re.compile(
    r"^```python\n(.*?)^```$|^\{\{ draw: (\w+) of (\w+)(?: by (\w+))? \}\}$", re.DOTALL | re.MULTILINE
)


def slug(title):
    """The anchor of a title, as GitHub and mkdocs make it."""
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def section(text, title):
    """The text below a title, up to the next one of its level or above."""
    level = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    if level is None:
        raise KeyError(f"there is no section {title!r}")
    end = re.compile(rf"^#{{1,{len(level[1])}}} ", re.MULTILINE).search(text, level.end())
    return text[level.end() : end.start() if end else None].strip()


def pages_of_sections():
    """Anchor of a section of the guide -> the page that has it."""
    found = {}
    for page in (SITE / "docs").rglob("*.md"):
        for kind, title in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            if kind == "guide":
                found[slug(title)] = page.relative_to(SITE / "docs").as_posix()
    return found


def linked(text, page, sections):
    """The text of the guide with links that lead somewhere from this page; others become their words."""

    def link(match):
        words, target = match[1], match[2]
        if target.startswith("pictures/"):
            place = posixpath.relpath(target, posixpath.dirname(page) or ".")
            return f"[{words}]({place})"
        if target.startswith("#") and target[1:] in sections:
            place = posixpath.relpath(sections[target[1:]], posixpath.dirname(page) or ".")
            return f"[{words}]({place})"
        if target.endswith(".ipynb"):
            return f"`notebooks/{target}`"
        return words

    return re.sub(r"\[([^\]]*)\]\(([^)]*)\)", link, text)


def drawn(markdown):
    """The page with its pictures: its Python runs in order, each picture is of the heap at that point."""
    import bfcviz
    from bfcviz.public_functions import trace_from
    from bfcviz.figures.svg import picture
    from bfcviz.figures.view_options import Look

    session, before = {}, os.getcwd()

    def made(match):
        code, name, variable, colour = match.groups()
        if code is not None:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(code, "page", "exec"), session)
            return match[0]
        model = bfcviz.Model(trace_from(session[variable]))
        model.seek(len(model.trace))
        look = Look(colour=colour) if colour else Look()
        return f'<div class="drawn">{picture(name, model, look, width=760, highest=220)}</div>'

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return BLOCK.sub(made, markdown)
        finally:
            os.chdir(before)


def on_files(files, config):
    """Add the pictures of the guide."""
    for path in sorted((NOTEBOOKS / "pictures").glob("*.png")):
        files.append(File.generated(config, f"pictures/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Fill in the directives of a page."""
    place, sections = page.file.src_uri, pages_of_sections()

    def told(match):
        kind, title = match.groups()
        return match[0] if kind == "draw" else linked(section(TEXTS[kind], title), place, sections)

    markdown = DIRECTIVE.sub(told, markdown)
    return drawn(markdown) if "{{ draw: " in markdown else markdown
