"""The documentation: its blocks run, its commands compose, its links lead somewhere, its layout is that of the tree."""

import os
import re
from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from support.doc_pages import DOCS, ROOT, anchors, blocks, links, pages, run_blocks, seqclf_commands

import seqclf
from seqclf import extend
from seqclf.config.arguments import TypedArguments, compose_plain
from seqclf.config.command_keys import SETTINGS, Command
from seqclf.config.hydra_config import compose_config
from seqclf.config.override_checks import HydraArguments
from seqclf.settings.base import parse_options

EXTEND_NAMES = [name for name in vars(extend) if not name.startswith("_")]
# Pages whose blocks are run. The commands of the others are checked against the configuration.
RUN = {"README.md", "quickstart.md", "notebook.md", "training.md", "deployment.md"}
IN_CI = ("README.md", "cards.md")
# Pages that are looked up from a sentence of another page, and are not in the navigation.
LOOKED_UP = ["log.md"]


def name(page: Path) -> str:
    return str(page.relative_to(DOCS if DOCS in page.parents else ROOT))


def is_run(page: Path) -> bool:
    """True if readers follow a page step by step and it has blocks to run."""
    runnable = [block for block in blocks(page) if block.language in ("sh", "python") and block.reason is None]
    return bool(runnable) and (page.name in RUN or page.parent.name == "tutorials")


def options_of(command: str, arguments: list[str]):
    """The checked config of a documented command, without Hydra's flags. Of a multirun, that of its first run."""
    if not Command(command).uses_hydra:
        return parse_options(Command(command).settings, compose_plain(TypedArguments(command, arguments)))
    overrides = []
    typed = [word for word in arguments if "=" in word]
    if command == "train":  # which looks into a checkpoint, of a run that readers have
        typed = [word for word in typed if not word.startswith("checkpoint=")]
    for override in OverridesParser.create().parse_overrides(HydraArguments(command, typed).for_hydra()):
        if override.key_or_group.startswith("hydra"):
            continue
        value = next(override.sweep_string_iterator()) if override.is_sweep_override() else None
        text = override.input_line
        overrides.append(f"{text.partition('=')[0]}={value}" if value is not None else text)
    return parse_options(Command(command).settings, compose_config(command, overrides).plain())


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(), ids=name)
def test_commands_that_are_not_run_are_valid(page):
    commands = [
        (block.line, command, arguments)
        for block in blocks(page)
        if block.language == "sh" and (block.reason is not None or not is_run(page))
        for command, arguments in seqclf_commands(block)
        if not {"--help", "--config-dir"} & set(arguments)
    ]
    for line, command, arguments in commands:
        try:
            options_of(command, arguments)
        except Exception as error:
            pytest.fail(f"{name(page)}:{line}: seqclf {command} {' '.join(arguments)}: {error}")


@pytest.mark.parametrize("page", pages(), ids=name)
def test_python_blocks_compile(page):
    for block in blocks(page):
        if block.language == "python":
            compile(block.text, f"{name(page)}:{block.line}", "exec")


@pytest.mark.parametrize(
    "page",
    [
        # CI has no time for the others, each of which trains several models. `pytest -m soak` runs them every week.
        pytest.param(page, marks=pytest.mark.slow if page.name in IN_CI else pytest.mark.soak, id=name(page))
        for page in filter(is_run, pages())
    ],
)
def test_blocks_of_a_page_run(page, tmp_path, cache):
    hidden = ("WANDB_", "HYDRA_", "SEQCLF_", "PYTEST_", "MLFLOW_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
    environment |= {"HOME": str(tmp_path), "SEQCLF_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    completed = run_blocks(page, tmp_path, environment)
    assert completed.returncode == 0, f"{completed.stdout[-1500:]}\n{completed.stderr[-3000:]}"
    printed = [without_numbers(line) for line in f"{completed.stdout}{completed.stderr}".splitlines()]
    for block in blocks(page):
        if block.is_output:
            missing = [line for line in block.text.splitlines() if without_numbers(line) not in printed]
            assert not missing, f"{page.name}:{block.line}: not printed"


def without_numbers(line: str) -> str:
    """Return a line without what differs between machines: numbers, and runs of spaces."""
    line = re.sub(r"(Of 100 sequences it classifies) .*", r"\1", line)
    return " ".join(re.sub(r"[\d.,:_-]*\d", "#", line).split())


@pytest.mark.parametrize("page", [*pages(), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"], ids=name)
def test_links_lead_to_files_and_headings(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: {link}: no such file"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name(page)}: {link}: no such heading"


def test_every_page_is_in_the_navigation():
    def files(entry):
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else (file for child in value for file in files(child))

    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = [file for entry in navigation for file in files(entry)] + LOOKED_UP
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
    linked = {target.partition("#")[0] for page in pages() for target in links(page)}
    assert linked >= set(LOOKED_UP)


def test_readme_is_short_and_shows_the_report():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert 'pip install -e ".[dev]" && pytest' in text, "the command that CI runs"
    assert (DOCS / "img" / "report.png").stat().st_size < 300_000


def test_the_api_page_lists_every_public_name():
    tables = (DOCS / "api.md").read_text().split("\n::: ")[0].split("| name of ")[1:]
    for table, public in zip(tables, [seqclf.__all__, EXTEND_NAMES], strict=True):
        rows = [line.split("|")[1] for line in table.splitlines()[2:] if line.startswith("|")]
        assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(public)


def layout_paths() -> list[str]:
    """Paths of the tree in docs/architecture.md, which nests by indentation."""
    tree = next(block.text for block in blocks(DOCS / "architecture.md") if block.text.startswith("conf/"))
    paths, folders = [], {0: ""}
    for line in tree.splitlines():
        indent = len(line) - len(line.lstrip())
        names = re.split(r"\s{2,}", line.strip())[0]
        suffix = ".py" if names.endswith("(.py)") else ""
        for entry in names.removesuffix("(.py)").split():
            paths.append(folders[indent] + entry + suffix)
            if entry.endswith("/"):
                folders[indent + 2] = paths[-1]
    return paths


def test_layout_names_files_that_exist_and_every_package():
    paths = layout_paths()
    assert "seqclf/data/reading/" in paths and "seqclf/train.py" in paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    packages = {f"seqclf/{path.parent.name}/" for path in (ROOT / "seqclf").glob("*/__init__.py")}
    assert packages - set(paths) == set()
    commands = {f"seqclf/{name}.py" for name in SETTINGS if not (ROOT / "seqclf" / name).is_dir()}
    assert commands - set(paths) == set()
