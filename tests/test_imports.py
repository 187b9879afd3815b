"""Imports: what a module may load, and which rooms it may import from."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import seqclf
from seqclf.config.command_keys import SETTINGS
from seqclf.data.field_spec import INPUT_KINDS

HOME = Path(seqclf.__file__).parent
# Each imports only from rooms to its left. Commands come last, and only their entry points import them.
ROOMS = [
    *(
        "__init__",
        "errors",
        "system",
        "settings",
        "config",
        "documents",
        "data",
        "batching",
        "models",
        "evaluation",
        "survey",
    ),
    *("training", "bundle", "report", "runs", "api", "extend", "commands"),
]
# The files and rooms of data/, in the same order.
DATA = [
    *(
        "__init__",
        "ragged",
        "field_spec",
        "schema",
        "encoding",
        "reading",
        "splitting",
        "sequence_columns",
        "quantities",
        "storage",
    ),
    *("stage_rows", "write_store", "prepare_data", "builtin"),
]
LIGHT = [
    "data.prepare_data",
    "batching.plan",
    "batching.collate",
    "evaluation.result",
    "evaluation.thresholds",
    "bundle.runtime",
    "bundle.predictions",
    "settings.command_settings",
    "commands.predict",
    "commands.evaluate",
    "commands.compare",
    "commands.doctor",
    "bundle.soundness",
    "evaluation.judge",
    "runs.run_comparison",
    "commands.subjects",
    "report.reported",
    "survey.survey",
    "commands.describe",
]
HEAVY = {"torch", "lightning", "pytorch_lightning", "torchmetrics", "wandb", "matplotlib"}


def test_data_and_prediction_load_neither_torch_nor_lightning_nor_wandb():
    imports = ", ".join(f"seqclf.{name}" for name in LIGHT)
    script = f"import sys, {imports}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not HEAVY & set(done.stdout.split())


def test_the_runtime_of_a_bundle_loads_no_config_library():
    """A service that predicts must start fast."""
    script = "import sys, seqclf.bundle.runtime; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not {"pydantic", "hydra", "omegaconf"} & set(done.stdout.split())


def test_no_command_is_named_like_a_standard_module():
    """A folder on the path, as an editor's Run button puts it there, must not hide the standard library."""
    names = {path.stem for path in HOME.iterdir() if path.suffix == ".py" or path.is_dir()} - {"__init__"}
    assert not names & sys.stdlib_module_names


def modules():
    """All Python files of the package."""
    return sorted(path for path in HOME.rglob("*.py"))


def imported(path):
    """Modules of this package that a file imports, by dotted name after `seqclf.`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "seqclf":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("seqclf."):
            yield node.module.removeprefix("seqclf.")
        elif isinstance(node, ast.Import):
            yield from (name.name.removeprefix("seqclf.") for name in node.names if name.name.startswith("seqclf."))


def files_of(room):
    folder = HOME / room
    found = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    return [path for path in found if path.name != "__main__.py"]  # an entry point


@pytest.mark.parametrize("room", ROOMS[1:])  # the names of `seqclf` itself are imported when they are used
def test_a_room_imports_only_rooms_before_it(room):
    """Imports inside of functions and for type checkers count too."""
    earlier = set(ROOMS[: ROOMS.index(room) + 1])
    for path in files_of(room):
        later = {name.split(".")[0] for name in imported(path)} - earlier
        assert not later, f"{path.relative_to(HOME)} imports {later}"


def test_data_goes_one_way_inside_of_its_room():
    assert {path.stem for path in (HOME / "data").iterdir() if path.name != "__pycache__"} == set(DATA)
    for place, part in enumerate(DATA):
        for path in files_of(f"data/{part}"):
            names = {name.split(".")[1] for name in imported(path) if name.startswith("data.")}
            assert names <= set(DATA[: place + 1]), path.relative_to(HOME)


def imported_files(path):
    """Names of the files that a file imports; `from seqclf.data import prepare_data` imports data/prepare_data.py."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "seqclf":
            folder = HOME.joinpath(*node.module.split(".")[1:])
            for alias in node.names:
                found = [folder / f"{alias.name}.py", folder.with_suffix(".py"), folder / "__init__.py"]
                yield next(file for file in found if file.is_file())


def test_no_files_import_each_other_in_a_circle():
    """Imports inside of functions and for type checkers count too."""
    imports = {path: set(imported_files(path)) - {path} for path in modules()}
    while imports:
        free = {path for path, needed in imports.items() if not needed & set(imports)}
        assert free, f"in circles, or above one: {sorted(str(path.relative_to(HOME)) for path in imports)}"
        imports = {path: needed for path, needed in imports.items() if path not in free}


def test_nothing_but_the_table_of_input_kinds_branches_on_the_kind_of_a_spec():
    """In data/, `field.kind` is the kind that a user declares, with other names."""
    for path in set(modules()) - {HOME / "data" / "field_spec.py"}:
        is_data = (HOME / "data") in path.parents
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                texts = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                is_of_spec = any(ast.unparse(side).endswith("['kind']") for side in (node.left, *node.comparators))
                assert not is_of_spec and (is_data or not texts & INPUT_KINDS.keys()), f"{path}: {ast.unparse(node)}"


def test_every_file_is_in_a_room_or_is_an_entry_point():
    outside = {path.relative_to(HOME).parts[0].removesuffix(".py") for path in modules()} - set(ROOMS)
    assert outside == {"__main__", "subcommands", *SETTINGS} - set(ROOMS)


def test_a_command_is_imported_by_none():
    """Its entry point names it alone, and imports nothing slow before signals are handled."""
    commands = {f"commands.{name}" for name in SETTINGS}
    parts = {f"commands.{name}" for name in ("__init__", "subjects", "trials", "after_multirun")}
    assert {name_of(path) for path in files_of("commands")} == commands | parts
    for path in modules():
        assert not commands & set(imported(path)), path
    for name in SETTINGS:
        entry = HOME / f"{name}.py"
        assert list(imported(entry)) == ["config.command"] and f'run("{name}")' in entry.read_text(encoding="utf-8")


def name_of(path):
    """Dotted name of a module after `seqclf.`."""
    return ".".join(path.relative_to(HOME).with_suffix("").parts)


def test_packages_import_nothing_of_this_package_by_themselves():
    """`seqclf` names its classes for type checkers, and imports each when it is first used."""
    for path in HOME.rglob("__init__.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        run = [
            node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        ]
        nodes = [node for part in run for node in ast.walk(part) if isinstance(node, (ast.Import, ast.ImportFrom))]
        modules = {getattr(node, "module", None) or node.names[0].name for node in nodes}
        assert modules <= ({"importlib", "os", "typing"} if path.parent == HOME else set()), path


def test_every_public_name_is_found_and_known_to_type_checkers():
    tree = ast.parse((HOME / "__init__.py").read_text(encoding="utf-8"))
    declared = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(seqclf.__all__) <= declared and set(seqclf.__all__) <= set(dir(seqclf))
    assert all(getattr(seqclf, name).__name__ == name for name in seqclf.__all__)
    with pytest.raises(AttributeError, match="no attribute 'train_all'"):
        seqclf.train_all  # noqa: B018


def test_a_classifier_of_the_python_api_loads_no_training_and_no_data_frames():
    script = "import sys, seqclf; seqclf.Classifier, seqclf.InputError; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    unwanted = {*HEAVY, "pydantic", "hydra", "omegaconf", "pandas", "polars", "sklearn"}
    assert not unwanted & set(done.stdout.split())


def test_nothing_is_unpickled():
    """Files from elsewhere are data, never code."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = {alias.name.split(".")[0] for alias in node.names} | {(getattr(node, "module", "") or "")}
                assert not names & {"pickle", "dill", "joblib", "cloudpickle", "marshal"}, path
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("torch.load", "np.load"):
                arguments = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                expected = {"torch.load": ("weights_only", "True"), "np.load": ("allow_pickle", "False")}
                key, value = expected[ast.unparse(node.func)]
                assert arguments.get(key) == value, f"{path}:{node.lineno}"
