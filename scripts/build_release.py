"""Build the packages of a release from this tree.

    python scripts/build_release.py [FOLDER]      FOLDER: where the wheels go, by default dist

`seqclf-runtime` has all code, and the dependencies of prediction. Its extras are those of ONNX Runtime (`cpu` or `gpu`,
exactly one of the two), of `evaluate` and `compare` (`evaluate`), and of training (`train`). `seqclf` has conf/ alone,
which a training needs, and depends on `seqclf-runtime[train]`, so that the two never own the same file. pyproject.toml
stays that of a checkout, `pip install -e .`, and is the one place for the versions.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LIGHT = ("numpy", "pyarrow", "duckdb", "xxhash", "tokenizers", "rich", "pydantic", "pydantic-core", "typing-extensions")
LIGHT = (*LIGHT, "pyyaml")
EVALUATE = ("scipy", "scikit-learn", "jinja2", "markupsafe", "matplotlib")
COPIED = ("description", "readme", "license", "license-files", "authors", "keywords", "requires-python", "classifiers")


def name_of(requirement: str) -> str:
    """Return the name of the package that a requirement such as `numpy>=2.1` names."""
    return re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0]


def packages(root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """Return the metadata of each package, the table [project] of its pyproject.toml, as a dict name → table."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = re.search(r'__version__ = "(.+)"', (root / "seqclf/system/version.py").read_text(encoding="utf-8"))
    assert version is not None, "seqclf/system/version.py"
    needed = {name_of(requirement): requirement for requirement in project["dependencies"]}
    assert {*LIGHT, *EVALUATE} <= needed.keys(), "each is a dependency of the whole"
    train = [text for name, text in needed.items() if name not in LIGHT]
    shared = {key: project[key] for key in COPIED} | {"version": version[1], "urls": project["urls"]}
    extras = project["optional-dependencies"]
    runtime = {
        "cpu": [needed["onnxruntime"].partition(";")[0]],
        "gpu": [needed["onnxruntime-gpu"].partition(";")[0]],
        "evaluate": [needed[name] for name in EVALUATE],
        "ray": extras["ray"],
        "train": train,
    }
    whole = {name: extras[name] for name in ("tensorboard", "mlflow", "sweep", "ray", "joblib")}
    return {
        "seqclf-runtime": {
            **shared,
            "dependencies": [needed[name] for name in LIGHT],
            "scripts": project["scripts"],
            "optional-dependencies": runtime,
        },
        "seqclf": {
            **shared,
            "dependencies": [f"seqclf-runtime[train]=={version[1]}"],
            "optional-dependencies": whole,
        },
    }


def toml(name: str, project: dict[str, Any], build: dict[str, Any]) -> str:
    """Return the text of a pyproject.toml."""
    tables = {key: value for key, value in project.items() if isinstance(value, dict)}
    plain = {"name": name} | {key: value for key, value in project.items() if key not in tables}
    blocks = {"build-system": build, "project": plain} | {f"project.{key}": value for key, value in tables.items()}
    if name == "seqclf":
        blocks["tool.hatch.build.targets.wheel"] = {"bypass-selection": True}
        blocks["tool.hatch.build.targets.wheel.force-include"] = {"conf": "seqclf/conf"}
    else:
        blocks["tool.hatch.build.targets.wheel"] = {"packages": ["seqclf"]}
    lines = []
    for block, values in blocks.items():
        lines.append(f"[{block}]")
        lines += [f"{json.dumps(key)} = {_value(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {_value(part)}' for key, part in value.items())}}}"
    return json.dumps(value)  # a text or a boolean is written as in JSON


def build(name: str, project: dict[str, Any], folder: Path, *, isolated: bool = True) -> Path:
    """Build the wheel of a package into `folder`, and return its path. `isolated`: see `python -m build`."""
    system = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary)
        for file in ("README.md", "LICENSE"):
            shutil.copy(ROOT / file, tree)
        source = "conf" if name == "seqclf" else "seqclf"
        shutil.copytree(ROOT / source, tree / source, ignore=shutil.ignore_patterns("__pycache__"))
        (tree / "pyproject.toml").write_text(toml(name, project, system), encoding="utf-8")
        options = [] if isolated else ["--no-isolation"]
        command = [sys.executable, "-m", "build", "--wheel", *options, "--outdir", str(folder), temporary]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob(f"{name.replace('-', '_')}-*.whl"))


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve()
    for name, project in packages().items():
        print(build(name, project, folder))


if __name__ == "__main__":
    main()
