"""Markdown pages of the documentation: their code blocks, commands, links and headings."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n|<!-- file: (?P<file>[^\n]+) -->\n|"
    r"(?P<output><!-- output)[^\n]* -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
# What the pages install and clone is here already, and their tests are those that run now.
STUBS = {
    "git": "mkdir seqclf",
    "pip": "exit 0",
    "pytest": "exit 0",
    "seqclf": f'exec "{sys.executable}" -m seqclf "$@"',
}


@dataclass(frozen=True)
class Block:
    """A fenced block, which begins at `line`.

    `reason`: why it is not run (`<!-- not run: … -->` before it). `file`: the path that readers save it as
    (`<!-- file: … -->`). Both are None where the page has no such comment. `is_output`: the blocks before it print its
    lines (`<!-- output … -->`).
    """

    language: str
    text: str
    line: int
    reason: str | None
    file: str | None
    is_output: bool


def pages() -> list[Path]:
    """Return the README and the pages of the site."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            match["language"],
            match["text"],
            text.count("\n", 0, match.start("text")) + 1,
            match["reason"],
            match["file"],
            match["output"] is not None,
        )
        for match in FENCE.finditer(text)
    ]


def seqclf_commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, arguments) of each seqclf command in a block of shell commands."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = [word for word in shlex.split(line, comments=True) if word != "…"]
        for position, word in enumerate(words):
            if word == "seqclf" and position + 1 < len(words) and re.fullmatch(r"[a-z]+", words[position + 1]):
                yield words[position + 1], words[position + 2 :]
                break
            if word.startswith("seqclf.") and words[position - 1] == "-m":
                yield word.removeprefix("seqclf."), words[position + 1 :]
                break


def run_blocks(page: Path, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the blocks of a page in a folder, in their order: shell by bash, Python in one process, files as written."""
    stubs = folder / "stubs"
    stubs.mkdir()
    for name, content in STUBS.items():
        (stubs / name).write_text(f"#!/bin/sh\n{content}\n")
        (stubs / name).chmod(0o755)
    script = ["import subprocess", "from pathlib import Path", "page = {}"]
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.reason is not None:
            continue
        if block.file is not None:
            script.append(f"Path({block.file!r}).parent.mkdir(parents=True, exist_ok=True)")
            script.append(f"Path({block.file!r}).write_text({block.text!r})")
        elif block.language == "sh":
            script.append(f"print({where!r}, flush=True)")
            script.append(f"subprocess.run(['bash', '-euo', 'pipefail', '-c', {block.text!r}], check=True)")
        elif block.language == "python":
            script.append(f"print({where!r}, flush=True)")
            # As many empty lines as come before the block, so that a traceback names its lines.
            script.append(f"exec(compile({chr(10) * (block.line - 1) + block.text!r}, {page.name!r}, 'exec'), page)")
    (folder / "run_page.py").write_text("\n".join(script))
    path = os.pathsep.join([str(stubs), str(Path(sys.executable).parent), environment["PATH"]])
    return subprocess.run(
        [sys.executable, "run_page.py"],
        cwd=folder,
        env={**environment, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as the site and GitHub make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def links(page: Path) -> list[str]:
    """Return the targets of the links and images of a page that lead to files of the repository."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"\w+:", target)]
