"""Configs composed by a program: the values of the command, and no trace in the process."""

import threading

from hydra import compose, initialize_config_dir, version
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from seqclf.config.hydra_config import CONF, compose_config, load_hydra_plugins

OVERRIDES = ["model=gru", "model.hidden_size=16", "experiment=names", "path=here", "+trainer.overfit_batches=2"]


def test_the_values_are_those_of_hydra():
    load_hydra_plugins()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        expected = OmegaConf.to_container(compose("train", OVERRIDES), resolve=True)
    assert compose_config("train", OVERRIDES).plain() == expected


def test_an_application_keeps_its_hydra():
    base = version.getbase()
    compose_config("train")
    assert not GlobalHydra.instance().is_initialized() and version.getbase() is base
    with initialize_config_dir(str(CONF), version_base="1.2"):
        mine = GlobalHydra.instance().hydra
        compose_config("train", ["model=gru"])
        assert GlobalHydra.instance().hydra is mine and str(version.getbase()) == "1.2"


def test_threads_compose_side_by_side():
    cells = {}

    def work(model):
        cells[model] = compose_config("train", [f"model={model}"]).plain()["model"]["cell"]

    threads = [threading.Thread(target=work, args=(model,)) for model in ("lstm", "gru", "rnn")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cells == {"lstm": "lstm", "gru": "gru", "rnn": "rnn"}


def test_every_composition_has_a_run_folder_of_its_time():
    first, second = (compose_config("train").run_folder for _ in range(2))
    assert first != second and first.parent == second.parent and first.is_absolute()
