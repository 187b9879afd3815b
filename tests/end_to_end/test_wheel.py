"""The installed wheel: its files, its config and its built-in data."""

import sys
from pathlib import Path

import pytest
import yaml

import seqclf

pytestmark = pytest.mark.slow

SOURCE = Path(seqclf.__file__).parents[1]


@pytest.fixture(scope="module")
def installed(shell, tmp_path_factory):
    """Build a wheel of the source and install it into an empty folder. Return the folder."""
    pytest.importorskip("hatchling", reason="the wheel is built without the network, so its builder must be installed")
    if not (SOURCE / "pyproject.toml").is_file():
        pytest.skip("the package is installed already: no source to build from")
    built, target = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("installed")
    completed = shell.start("-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(SOURCE))()
    assert completed.exit_code == 0, completed.stderr
    (wheel,) = built.glob("*.whl")
    pip = ("-m", "pip", "install", "--no-deps", "--no-index", "--no-compile", "--target", str(target), str(wheel))
    completed = shell.start(*pip)()
    assert completed.exit_code == 0, completed.stderr
    return target


def test_wheel_holds_the_package_its_config_and_its_data(installed):
    installed_files = {
        path.relative_to(installed / "seqclf").as_posix() for path in (installed / "seqclf").rglob("*.*")
    }
    expected = {path.relative_to(SOURCE / "seqclf").as_posix() for path in (SOURCE / "seqclf").rglob("*.py")}
    expected |= {f"conf/{path.relative_to(SOURCE / 'conf').as_posix()}" for path in (SOURCE / "conf").rglob("*.yaml")}
    expected |= {f"data/builtin/japanese_vowels_{split}.parquet" for split in ("train", "test")}
    assert expected <= installed_files
    assert not [name for name in installed_files if "tests" in name]
    assert {path.name for path in installed.iterdir() if path.is_dir() and "dist-info" not in path.name} == {"seqclf"}


def test_installed_package_trains_from_the_config_in_the_wheel(shell, installed, tmp_path):
    # Another default seed in the installed config shows which of the two configs is read.
    conf = installed / "seqclf/conf/train.yaml"
    text = conf.read_text(encoding="utf-8")
    assert "\nseed: 0 " in text
    conf.write_text(text.replace("\nseed: 0 ", "\nseed: 7 "), encoding="utf-8")
    completed = shell.start(
        "-m",
        "seqclf.train",
        "data=toy",
        "data.generator.rows={train: 120, validation: 40, test: 40}",
        "trainer.max_epochs=1",
        "model.hidden_size=8",
        "logger=none",
        "hydra.run.dir=run",
        cwd=tmp_path,
        PYTHONPATH=str(installed),
    )()
    assert completed.result["split"] == "test"
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["seed"] == 7
    assert (tmp_path / "run/bundle/manifest.json").is_file()


def test_installed_package_reads_its_built_in_data(shell, installed, tmp_path):
    script = (
        "import seqclf; from seqclf.data.reading.reader import count_rows; "
        "from seqclf.data.reading.sources import Source; "
        "print(seqclf.__file__); "
        "print(count_rows(Source('builtin:japanese_vowels_train.parquet', 'data.train')))"
    )
    completed = shell.start("-c", script, cwd=tmp_path, PYTHONPATH=str(installed))()
    assert completed.stdout.split() == [str(installed / "seqclf/__init__.py"), "270"], sys.version
