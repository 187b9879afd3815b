"""Help texts of the commands: the keys of the tree of settings, and the files of conf/ with their comments."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seqclf.config.command_keys import CONF, Command, block_of, descriptions, nested_defaults, nodes_of, parents_of
from seqclf.config.hints import fail
from seqclf.errors import InputError
from seqclf.settings.typed_text import label_text, must_be_one_of
from seqclf.system.json_result import write_stdout

HELP = ("--help", "-h")
COLUMN, WIDTH = 28, 120  # column of the descriptions, and of the end of a line
EXAMPLES = {
    "train": """seqclf train                              the built-in data
seqclf train data=files data.train=train.parquet data.test=test.parquet \\
  data.label=label
seqclf train model=gru trainer.max_epochs=5 seed=1 logger=none
seqclf train -m model=lstm,gru seed=0,1   one run for each combination""",
    "retrain": """seqclf retrain bundle=OLD data.train=november.parquet data.test=december.parquet
seqclf retrain bundle=OLD run=OLDRUN data.train=new.parquet trainer.max_epochs=3""",
    "export": """seqclf export checkpoint=RUN/model.ckpt bundle=DIR
seqclf export bundle=RUN/bundle triton=REPOSITORY/MODEL""",
    "predict": """seqclf predict bundle=DIR input=new.parquet output=scores.parquet
seqclf predict bundle=DIR sequence="[1, 2, 3]"
seqclf predict bundle=DIR input=new.parquet output=tokens.parquet explain=true
seqclf predict bundle=DIR input=new.parquet output=scores.parquet engine=ray""",
    "evaluate": """seqclf evaluate bundle=DIR data=files data.test=test.parquet data.label=label
seqclf evaluate run=RUN decision.min_recall=0.9
seqclf evaluate scores=mine.parquet against=RUN/scores/6-network.parquet""",
    "compare": """seqclf compare 'runs=[runs/lstm, runs/gru]'
seqclf compare 'runs=[multirun/seeds/*]' split=validation
seqclf compare 'runs=[runs/*]' against=runs/lstm""",
    "doctor": """seqclf doctor bundle=DIR
seqclf doctor bundle=DIR device=cuda""",
    "describe": """seqclf describe data=files data.train=train.parquet data.label=label
seqclf describe experiment=names path=FOLDER output=names.json""",
    "search": """seqclf search data=files data.train=train.parquet data.label=label \\
  search.trials=30
seqclf search 'search.space={model.layers: [1, 2], model.dropout: {low: 0, high: 0.5}}'""",
}
OPTIONS = """Options:
  --help GROUP          explain the keys of a group, or of a choice: {topics}
  --config-dir DIR      add a folder of YAML files: DIR/GROUP/CHOICE.yaml
  --cfg job             print the whole configuration
  -m, --multirun        run every combination of the values in KEY=A,B
  --hydra-help          print all options"""


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Return True if the arguments of a command contain `--help` or `-h`."""
    return any(text in HELP for text in arguments)


def print_help(name: str, arguments: Sequence[str]) -> None:
    """Print the help text of a command, or of the topics among the arguments. An unknown one ends with exit code 2."""
    command = Command.typed(name, arguments)
    topics = [text for text in arguments if not text.startswith("-")]
    try:
        write_stdout(help_text(command, topics))
    except InputError as error:
        fail(error)


def help_text(command: Command, topics: Sequence[str] = ()) -> str:
    """Return the help text of a command or of `topics`, or raise InputError for an unknown one.

    A topic is a config group, a choice (`model=gru`) or a key, whose first part is a group or a key of the command.
    """
    if not topics:
        return "\n".join(_overview(command))
    return "\n\n".join("\n".join(_topic(command, topic)) for topic in topics)


def _overview(command: Command) -> Iterator[str]:
    yield command.summary
    yield ""
    yield textwrap.indent(EXAMPLES[command.name], "  ")
    if command.groups:
        yield ""
        yield "Groups (GROUP=CHOICE), with the default choice first:"
        yield from (f"  {group:10}  {', '.join(command.choices(group))}" for group in command.groups)
    yield ""
    yield "Keys (KEY=VALUE; a key in a block as BLOCK.KEY=VALUE):"
    yield ""
    for node in command.nodes:
        yield from key_lines(node, without=command.groups)
    for path, value in command.defaults().items():
        if path.startswith("hydra.") and value != ".":
            yield f"{path}: {value}  # folder of the outputs"
    if command.uses_hydra:
        yield ""
        yield OPTIONS.format(topics=next((f"{group}, {group}=CHOICE" for group in command.groups), "none here"))


def key_lines(node: Any, above: str = "", defaults: Mapping[str, Any] = {}, without: Any = ()) -> Iterator[str]:
    """Yield the lines of the keys of a class of settings: its paragraphs, and `key: default  # description`."""
    values = nested_defaults(node, defaults)
    for name, text in descriptions(node).items():
        if name in without or name not in values:
            continue
        text, _, paragraph = text.partition("\n\n")
        if paragraph:
            yield textwrap.indent(paragraph, f"{above}# ", lambda line: True)
        block, value = block_of(node.model_fields[name]), values[name]
        start = f"{above}{name}:" if block or (isinstance(value, dict) and value) else f"{above}{name}: {_shown(value)}"
        lines = textwrap.wrap(text, WIDTH - COLUMN - 2, break_on_hyphens=False)
        yield f"{start:{COLUMN - 1}} # {lines[0]}" if lines else start
        yield from (" " * COLUMN + f"# {line}" for line in lines[1:])
        if block and name != "data":  # `evaluate` reads its rows as a training does
            yield from key_lines(block.model, f"{above}  ", block.defaults)
        elif isinstance(value, dict):
            yield from (f"{above}  {key}: {_shown(part)}" for key, part in value.items())


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return json.dumps(value).replace('"', "")
    return "null" if value is None else label_text(value) or "''"


def _topic(command: Command, topic: str) -> Iterator[str]:
    name, _, choice = topic.lstrip("+~").partition("=")
    group = name.partition(".")[0]
    if group not in command.groups:
        if any(f"{key}.".startswith(f"{group}.") for key in command.defaults()):
            yield from _overview(command)
            return
        raise InputError(f"--help {topic}", *must_be_one_of(group, command.groups))
    choices = command.choices(group)
    if choice and choice not in choices and name == group:
        raise InputError(f"--help {topic}", *must_be_one_of(choice, choices))
    yield f"# {group}: {', '.join(choices)}"
    yield from _choice(command, group, choice if name == group and choice else choices[0])
    for node in command.nodes:
        if group in descriptions(node) and (block := block_of(node.model_fields[group])):
            yield ""
            yield textwrap.indent(_paragraphs(block.model), "# ", lambda line: True)
            yield from key_lines(block.model, defaults=block.defaults)
            break


def _paragraphs(node: Any) -> str:
    return textwrap.dedent("    " + node.__doc__.partition(">>>")[0]).strip()


def _choice(command: Command, group: str, choice: str) -> Iterator[str]:
    file = command.file(group, choice)
    yield ""
    yield f"# {group}/{file.name}" if file.is_relative_to(CONF) else f"# {file}"
    yield file.read_text(encoding="utf-8").strip("\n")
    for node in nodes_of(file):
        yield from key_lines(node)
    for parent in parents_of(file):
        if parent in command.choices(group):
            yield from _choice(command, group, parent)
