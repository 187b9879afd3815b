"""The distribution: its files and metadata, and the installed wheel in an empty folder."""

import email
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

import seqclf

pytestmark = pytest.mark.slow

SOURCE = Path(seqclf.__file__).parents[1]
NOT_DISTRIBUTED = (".github/", ".dockerignore")


@pytest.fixture(scope="module")
def built(shell, tmp_path_factory):
    """Build an sdist of the source and a wheel of the sdist. Return their folder."""
    pytest.importorskip("hatchling", reason="built without the network, so the builder must be installed")
    if not (SOURCE / "pyproject.toml").is_file():
        pytest.skip("the package is installed already: no source to build from")
    folder = tmp_path_factory.mktemp("built")
    completed = shell.start("-m", "build", "--no-isolation", "--outdir", str(folder), str(SOURCE))()
    assert completed.exit_code == 0, completed.stderr
    return folder


@pytest.fixture(scope="module")
def installed(shell, built, tmp_path_factory):
    """Install the wheel into an empty folder. Return the folder."""
    target = tmp_path_factory.mktemp("installed")
    (wheel,) = built.glob("*.whl")
    pip = ("-m", "pip", "install", "--no-deps", "--no-index", "--no-compile", "--target", str(target), str(wheel))
    completed = shell.start(*pip)()
    assert completed.exit_code == 0, completed.stderr
    return target


def test_sdist_holds_every_tracked_file(built):
    if shutil.which("git") is None or not (SOURCE / ".git").exists():
        pytest.skip("no git checkout")
    listed = subprocess.run(["git", "ls-files"], cwd=SOURCE, capture_output=True, text=True, check=True).stdout
    tracked = {name for name in listed.splitlines() if not name.startswith(NOT_DISTRIBUTED)}
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked - held == set()


def test_metadata_is_complete_and_renders(shell, built):
    completed = shell.start("-m", "twine", "check", "--strict", *map(str, built.iterdir()))()
    assert completed.exit_code == 0, completed.stdout
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["Version"] == seqclf.__version__
    assert all(metadata[key] for key in ("Summary", "Author", "Keywords", "License-Expression", "Requires-Python"))
    links = {link.partition(",")[0] for link in metadata.get_all("Project-URL")}
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= links
    assert {"mlflow", "tensorboard", "sweep", "joblib"} <= set(metadata.get_all("Provides-Extra"))


def test_wheel_holds_the_package_and_its_config(installed):
    held = {path.relative_to(installed / "seqclf").as_posix() for path in (installed / "seqclf").rglob("*")}
    files = [path for path in (SOURCE / "seqclf").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {path.relative_to(SOURCE / "seqclf").as_posix() for path in files}
    expected |= {f"conf/{path.relative_to(SOURCE / 'conf').as_posix()}" for path in (SOURCE / "conf").rglob("*.yaml")}
    assert expected <= held
    assert {path.name for path in installed.iterdir() if "dist-info" not in path.name} - {"bin"} == {"seqclf"}


def test_installed_package_trains_and_predicts_in_an_empty_folder(shell, installed, tmp_path):
    def run(name, *arguments):
        return shell.start("-m", f"seqclf.{name}", *arguments, cwd=tmp_path, PYTHONPATH=str(installed))()

    # Another default seed in the installed config shows which of the two configs is read.
    conf = installed / "seqclf/conf/train.yaml"
    text = conf.read_text(encoding="utf-8")
    conf.write_text(f"{text}\nseed: 7\n", encoding="utf-8")
    quick = ["trainer.max_epochs=1", "model.hidden_size=8", "logger=none", "baseline=false", "runtime.threads=1"]
    assert run("train", *quick, "hydra.run.dir=run").result["split"] == "test"
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["seed"] == 7
    rows = installed / "seqclf/data/builtin/spoken_arabic_digits_test.parquet"
    assert run("predict", "bundle=run/bundle", f"input={rows}", "output=scores.parquet").exit_code == 0
    assert pq.read_metadata(tmp_path / "scores.parquet").num_rows == pq.read_metadata(rows).num_rows == 1100
    assert run("describe", "output=describe.json").exit_code == 0
    assert (tmp_path / "describe.json").is_file()
