"""Keys that a user wrote are told from those that the config files of this package bring."""

import sys

import hydra
import pytest

from seqclf.config.documentation import CONF
from seqclf.config.user_keys import written_keys

FILES = {
    "model/mine.yaml": "_target_: mine.Net\nkernel: 5\nencoder: {_target_: mine.Conv}\n",
    "model/extended.yaml": "defaults: [gru, _self_]\nlayers: 2\n",
    "model/twice.yaml": "defaults: [mine, _self_]\nheads: 4\n",
    "experiment/mine.yaml": "# @package _global_\ndefaults:\n  - override /model: mine\nloss: {margin: 1}\nseed: 3\n",
}
MINE = {"model", "model._target_", "model.kernel", "model.encoder", "model.encoder._target_"}

CASES = [
    ([], set()),
    (["model=gru", "~model.cell", "hydra.verbose=true"], {"model"}),
    (["experiment=names", "++path=x"], {"experiment", "path"}),
    (["+model.kernel=5"], {"model", "model.kernel"}),
    (["+model.encoder={kernel: 5}"], {"model", "model.encoder", "model.encoder.kernel"}),
    (["model=mine"], MINE),
    (["model=extended"], {"model", "model.layers"}),
    (["model=twice"], {*MINE, "model.heads"}),
    (["experiment=mine"], {"experiment", "seed", "loss", "loss.margin", *MINE}),
]


@pytest.fixture
def written_by(tmp_path, monkeypatch):
    """`written_by(*overrides)`: the written keys of a command with `FILES` in its `--config-dir`."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def run(*overrides):
        results = []
        main = hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")(
            lambda config: results.append(written_keys())
        )
        monkeypatch.setattr(sys, "argv", ["train", "--config-dir", str(tmp_path), *overrides, "hydra.run.dir=run"])
        main()
        return results[0]

    return run


@pytest.mark.parametrize(("overrides", "keys"), CASES, ids=[" ".join(overrides) or "none" for overrides, _ in CASES])
def test_keys_of_the_command_line_and_of_other_config_files_are_written(written_by, overrides, keys):
    assert {key for key in written_by(*overrides) if not key.startswith("hydra")} == keys
