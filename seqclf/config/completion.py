"""Shell completion of `seqclf`: commands, groups, choices, keys and files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from seqclf.config.command_line import chosen_groups, typed_command
from seqclf.config.documentation import GLOBAL_GROUP, Command, command_names

OPTIONS = ("--help", "--cfg", "--multirun", "--config-dir")

# Both pass the words up to the cursor. A candidate that ends in = or . goes on, so no space follows it. Where there is
# no candidate, the part after the = is completed as a file.
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
    """Return what the last of the words can become. The first is the command.

    >>> completions(["tra"]), completions(["train", "model=g"])
    (['train'], ['model=gru'])
    """
    if len(words) <= 1:
        return _starting(words[0] if words else "", [*command_names(), "--help", "--version"])
    name, *typed, word = words
    if name not in command_names():
        return []
    command = typed_command(name, typed)
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
    """Return the arguments that a word can become: one level of keys, so that lists stay short."""
    group, equals, _ = word.partition("=")
    if equals:
        if group in command.groups:
            return [f"{group}={name}" for name in command.choices(group)]
        keys = {key.path: key for key in command.all_keys(chosen_groups(command, typed))}
        is_boolean = group in keys and keys[group].value in ("true", "false")
        return [f"{group}=true", f"{group}=false"] if is_boolean else []
    above, dot, _ = word.rpartition(".")
    names = [] if above else [f"{name}=" for name in command.groups]
    for key in command.all_keys(chosen_groups(command, typed)):
        if not key.path.startswith(f"{above}{dot}") or key.value is None:
            continue
        name, more, _ = key.path[len(above + dot) :].partition(".")
        names.append(f"{above}{dot}{name}{'.' if more else '='}")
    own = [f"{variable}=" for variable in _variables(command, typed)] if not above else []
    return list(dict.fromkeys([*names, *own]))


def _variables(command: Command, typed: Sequence[str]) -> list[str]:
    """Return the variables of the chosen experiment, such as `path`."""
    name = chosen_groups(command, typed).get(GLOBAL_GROUP)
    return [key.path for key in command.choice(GLOBAL_GROUP, name).keys if key.is_required] if name else []
