"""Settings of a training by default, as conf/ has them, for programs that compose no config.

They are read without Hydra and OmegaConf, which `SequenceTask` and `SequenceDataModule` do not need.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import yaml

from seqclf.config.documentation import CONF


def default_settings(name: str) -> Any:
    """Return the default choice of a group, such as `model`, or a key of conf/train.yaml. A new copy at each call.

    The file of the choice is read as it is: the default ones refer to no other file and to no other key.

    >>> default_settings("monitor"), default_settings("model")["cell"]
    ('recall', 'lstm')
    """
    train = _read("train")
    choices: dict[str, Any] = {}
    for entry in train["defaults"]:
        choices |= entry if isinstance(entry, dict) else {}  # `_self_` is a text
    return copy.deepcopy(_read(f"{name}/{choices[name]}") if name in choices else train[name])


@cache
def _read(name: str) -> dict[str, Any]:
    return yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
