"""The packages of a release: the runtime predicts where neither PyTorch nor Hydra is installed."""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.untrained_task import export_table

from seqclf.bundle.runtime import Classifier

ROOT = Path(__file__).parents[2]
ROWS = [{"shop": ["a", "b"], "amount": [1.0, 2.5]}, {"shop": ["c"], "amount": [0.1]}]


def release():
    spec = importlib.util.spec_from_file_location("build_release", ROOT / "scripts/build_release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    script = release()
    return script.build(
        "seqclf-runtime", script.packages()["seqclf-runtime"], tmp_path_factory.mktemp("dist"), isolated=False
    )


def required(names, extra=""):
    found, waiting = set(), [Requirement(name) for name in names]
    while waiting:
        requirement = waiting.pop()
        name = requirement.name.lower()
        if (requirement.marker is not None and not requirement.marker.evaluate({"extra": extra})) or name in found:
            continue
        found.add(name)
        waiting += [Requirement(text) for text in importlib.metadata.requires(name) or []]
    return found


def light_environment(folder, wheel, extras):
    """A folder for PYTHONPATH with the runtime and what it depends on, and with nothing else of this environment."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    metadata = importlib.metadata.PathDistribution(next(folder.glob("seqclf_runtime*.dist-info")))
    direct = [Requirement(text) for text in metadata.requires]
    names = [str(part.name) for part in direct if part.marker is None]
    wanted = [extra for extra in extras if extra != "cpu"]
    names += [
        part.name for part in direct for extra in wanted if part.marker and part.marker.evaluate({"extra": extra})
    ]
    runtime = "onnxruntime-gpu" if any(d.name == "onnxruntime-gpu" for d in importlib.metadata.distributions()) else ""
    names += [runtime or "onnxruntime"] if "cpu" in extras else []
    for name in required(names):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files if file.parts[0] != ".."}:
            source = Path(distribution.locate_file(top))
            if source.exists() and not (folder / top).exists():
                (folder / top).symlink_to(source)
    return folder


def run(folder, *arguments, cwd):
    # -S leaves out the packages of this environment.
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    columns = {
        "shop": [["a", "b"], ["c"], ["a"], ["b", "c"]] * 8,
        "amount": [[1.0, 2.0], [0.5], [2.5], [1.5, 0.0]] * 8,
        "label": ["yes", "no"] * 16,
    }
    folder = tmp_path_factory.mktemp("light")
    export_table(folder, columns, {"bidirectional": False}, fields={"shop": "category", "amount": "number"})
    return folder / "bundle"


@pytest.fixture(scope="module")
def light(tmp_path_factory, wheel):
    return light_environment(tmp_path_factory.mktemp("site"), wheel, ["cpu"])


def test_a_release_needs_what_the_checkout_needs():
    script = release()
    runtime, whole = (script.packages()[name] for name in ("seqclf-runtime", "seqclf"))
    script_names = [*runtime["dependencies"], *runtime["optional-dependencies"]["train"]]
    project = script.tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(script_names) == sorted(project["dependencies"])
    assert whole["dependencies"] == [f"seqclf-runtime[train]=={runtime['version']}"]
    assert "bypass-selection" in script.toml("seqclf", whole, {}), "it owns no file of the other"


def test_the_runtime_holds_no_config_files_and_the_whole_holds_nothing_else(wheel, tmp_path):
    script = release()
    whole = script.build("seqclf", script.packages()["seqclf"], tmp_path, isolated=False)
    names = [
        [name for name in zipfile.ZipFile(path).namelist() if ".dist-info/" not in name] for path in (wheel, whole)
    ]
    runtime, config = names
    assert not [name for name in runtime if name.endswith((".yaml", ".yml"))]
    assert "seqclf/conf/train.yaml" in config and all(name.startswith("seqclf/conf/") for name in config)


def test_the_runtime_predicts_as_the_checkout(light, bundle, tmp_path):
    script = f"import json, seqclf; print(json.dumps(seqclf.Classifier({str(bundle)!r}).predict({ROWS})))"
    done = run(light, "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [row["probabilities"] for row in json.loads(done.stdout)]
    expected = [row["probabilities"] for row in Classifier(bundle).predict(ROWS)]
    assert found == [pytest.approx(row, abs=1e-6) for row in expected]


def test_the_runtime_predicts_files(light, bundle, tmp_path):
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    arguments = [f"bundle={bundle}", "input=rows.jsonl", "output=scores.csv"]
    done = run(light, "-m", "seqclf", "predict", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 2 and len((tmp_path / "scores.csv").read_text().splitlines()) == 3


def test_the_runtime_checks_a_bundle(light, bundle, tmp_path):
    done = run(light, "-m", "seqclf", "doctor", f"bundle={bundle}", "device=cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["passed"]


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["train"], "pip install seqclf\n"),
        (["describe", "data=toy"], "pip install seqclf\n"),
        (["evaluate", "bundle={}", "data.test=rows.jsonl"], "pip install 'seqclf-runtime[evaluate]'\n"),
        (["compare", "runs=[nothing]"], "pip install 'seqclf-runtime[evaluate]'\n"),
    ],
)
def test_what_the_runtime_lacks_is_one_line_that_names_the_package(light, bundle, tmp_path, arguments, remedy):
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    done = run(light, "-m", "seqclf", *(text.format(bundle) for text in arguments), cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == "", done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.endswith(f"is not installed, which this needs; {remedy}")


def test_names_of_training_say_what_to_install(light, tmp_path):
    script = "import seqclf\ntry: seqclf.fit\nexcept seqclf.InputError as error: print(error.remedy)"
    assert run(light, "-c", script, cwd=tmp_path).stdout == "pip install seqclf\n"


def test_without_onnx_runtime_an_extra_is_named(tmp_path, wheel, bundle):
    bare = light_environment(tmp_path / "site", wheel, [])
    done = run(bare, "-m", "seqclf", "predict", f"bundle={bundle}", "sequence=[]", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.endswith("pip install 'seqclf-runtime[cpu]'\n"), done.stderr


def test_the_extra_of_evaluate_judges_a_bundle_and_scores(tmp_path, wheel, bundle):
    light = light_environment(tmp_path / "site", wheel, ["cpu", "evaluate"])
    rows = [{**row, "label": label} for row, label in zip(ROWS * 4, ["yes", "no"] * 4, strict=True)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = [f"bundle={bundle}", "data.test=rows.jsonl"]
    done = run(light, "-m", "seqclf", "evaluate", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 8 and "</html>" in (tmp_path / "evaluation/report.html").read_text()
    done = run(light, "-m", "seqclf", "evaluate", "scores=evaluation/scores.parquet", cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["split"] == "test", done.stderr


@pytest.mark.slow
def test_installed_over_a_checkout_and_removed_again_the_checkout_works(tmp_path, wheel):
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin/python"

    def pip(*arguments):
        command = [python, "-m", "pip", *arguments]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": ""})

    def folder():
        script = "import seqclf; print(seqclf.__file__); seqclf.Classifier"
        env = {**os.environ, "PYTHONPATH": ""}
        done = subprocess.run([python, "-c", script], capture_output=True, text=True, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip()).parent

    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "checkout.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    assert folder() == ROOT / "seqclf"
    pip("install", "--no-deps", "--no-index", str(wheel))
    assert environment in folder().parents
    pip("uninstall", "--yes", "seqclf-runtime")
    assert folder() == ROOT / "seqclf"
