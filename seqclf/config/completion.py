"""Shell completion for `seqclf`: completes commands, config groups, choices, keys and file names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from seqclf.config.documentation import Command, command_names

OPTIONS = ("--help", "--cfg", "--multirun", "--config-dir")

# Both scripts call `seqclf --complete` with the words before the cursor, and read the candidates. After a candidate
# that ends in = or . the shell adds no space, because the argument is incomplete. If there are no candidates, the shell
# completes the part after the = as a file name.
BASH = r"""_seqclf() {
    local line="${COMP_LINE:0:COMP_POINT}" word candidates IFS=$' \t\n'
    local -a words
    read -ra words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    word="${words[${#words[@]}-1]}"
    IFS=$'\n'
    candidates=$(seqclf --complete "${words[@]:1}" 2>/dev/null)
    if [[ -n "$candidates" ]]; then
        COMPREPLY=($candidates)
        if [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *[=.] ]]; then compopt -o nospace; fi
    else
        compopt -o filenames
        COMPREPLY=($(compgen -f -- "${word#*=}"))
        # Bash takes = as a word break: what precedes it is kept on the line.
        [[ "$COMP_WORDBREAKS" == *=* ]] && return
        [[ "$word" == *=* ]] && COMPREPLY=("${COMPREPLY[@]/#/${word%%=*}=}")
        return
    fi
    if [[ "$COMP_WORDBREAKS" == *=* && "$word" == *=* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${word%=*}="}")
    fi
}
complete -F _seqclf seqclf"""

ZSH = r"""autoload -Uz compinit && compinit -C
_seqclf() {
    local -a candidates ending other
    candidates=("${(@f)$(seqclf --complete "${words[@]:1:$((CURRENT - 1))}" 2>/dev/null)}")
    candidates=(${candidates:#})
    if (( ${#candidates} )); then
        ending=(${(M)candidates:#*[=.]})
        other=(${candidates:#*[=.]})
        (( ${#ending} )) && compadd -S '' -- $ending
        (( ${#other} )) && compadd -- $other
    else
        compset -P '*='
        _files
    fi
}
compdef _seqclf seqclf"""

SCRIPTS = {"bash": BASH, "zsh": ZSH}


def completions(words: Sequence[str]) -> list[str]:
    """Return the candidates for the last word of a command line. The first word is the name of the command.

    >>> completions(["tra"]), completions(["train", "model=g"])
    (['train'], ['model=gru', 'model=gru_d'])
    """
    if len(words) <= 1:
        return _starting(words[0] if words else "", [*command_names(), "--help", "--version"])
    name, *typed, word = words
    if name not in command_names():
        return []
    command = Command.typed(name, typed)
    if typed and typed[-1] in ("--help", "-h"):
        return _starting(word, _topics(command))
    if word.startswith("-"):
        return _starting(word, OPTIONS)
    mark = word[: len(word) - len(word.lstrip("+~"))]
    return [mark + text for text in _starting(word[len(mark) :], _arguments(command, typed, word[len(mark) :]))]


def _starting(word: str, candidates: Iterable[str]) -> list[str]:
    return [text for text in candidates if text.startswith(word)]


def _topics(command: Command) -> Iterator[str]:
    for group in command.groups:
        yield group
        yield from (f"{group}={name}" for name in command.choices(group))
    yield from (key.path for key in command.all_keys())


def _arguments(command: Command, typed: Sequence[str], word: str) -> list[str]:
    """Return the candidates for an argument. Nested keys are completed level by level, to keep the list short."""
    chosen = command.chosen(typed)
    keys = {key.path: key.value for key in command.all_keys(chosen) if key.value is not None}
    name, equals, _ = word.partition("=")
    if name in command.groups and equals:
        return [f"{name}={choice}" for choice in command.choices(name)]
    if equals:
        return [f"{name}=true", f"{name}=false"] if keys.get(name) in ("true", "false") else []
    # Variables of an experiment, such as `path`, are completed like keys.
    paths = [f"{path}=" for path in [*command.groups, *keys, *command.variables(chosen)]]
    above = word[: word.rfind(".") + 1]
    parts = (re.match(r"[^.=]*[.=]", path[len(above) :]) for path in paths if path.startswith(above))
    return list(dict.fromkeys(above + part[0] for part in parts if part is not None))
