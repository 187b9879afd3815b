"""A checkpoint of any origin runs no code that is not trusted, and a malformed one is refused."""

import copy
import re
import sys
import warnings

import pytest
import torch

from seqclf.errors import InputError
from seqclf.training.resume import check_resumable
from seqclf.training.task import load_task

from .conftest import QUIET

pytestmark = QUIET


@pytest.fixture
def state(task, fit, tmp_path):
    path = tmp_path / "good.ckpt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(task(), max_epochs=1).save_checkpoint(path)
    return torch.load(path, weights_only=True)


@pytest.fixture
def saved(state, tmp_path):
    """`saved(change)` returns the path of that checkpoint after `change(state)`."""

    def save(change=lambda state: None):
        changed = copy.deepcopy(state)
        change(changed)
        torch.save(changed, tmp_path / "some.ckpt")
        return tmp_path / "some.ckpt"

    return save


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A package in the working directory that writes a file when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "foreign.py").write_text(
        "from pathlib import Path\nPath('imported').touch()\nfrom seqclf.models.classifier import EncoderClassifier\n"
        "class Net(EncoderClassifier): pass\n"
        "def make(**options): Path('called').touch()\n"
    )
    yield tmp_path
    sys.modules.pop("foreign", None)


def target(part, name):
    return lambda state: state["hyper_parameters"][part].update(_target_=name)


@pytest.mark.parametrize(
    ("part", "trust"), [("model", ()), ("model", ("foreig",)), ("model", ("foreign.sub",)), ("loss", False)]
)
def test_code_of_a_package_that_is_not_trusted_is_not_even_imported(saved, foreign, part, trust):
    path = saved(target(part, "foreign.Net"))
    with pytest.raises(InputError, match=rf"{part}\._target_=foreign\.Net: would run code .* set trust=foreign$"):
        load_task(path, trust)
    assert not (foreign / "imported").exists()


NESTED = {
    "model.encoder": lambda hyper, name: hyper["model"]["encoder"].update(_target_=name),
    "model.encoder.parts[1]": lambda hyper, name: hyper["model"]["encoder"].update(parts=[3, {"_target_": name}]),
    "loss.inner.loss": lambda hyper, name: hyper["loss"].update(inner={"loss": {"_target_": name}}),
}


@pytest.mark.parametrize("key", NESTED)
def test_code_inside_of_a_model_or_a_loss_has_to_be_trusted_too(saved, foreign, key):
    path = saved(lambda state: NESTED[key](state["hyper_parameters"], "foreign.Net"))
    line = rf"{re.escape(key)}\._target_=foreign\.Net: would run code .* set trust=foreign$"
    with pytest.raises(InputError, match=line):
        load_task(path, ("other",))
    assert not (foreign / "imported").exists()


@pytest.mark.parametrize("trust", [True, ("foreign",)])
def test_code_of_a_trusted_package_runs_if_it_is_a_model(saved, foreign, trust):
    assert type(load_task(saved(target("model", "foreign.Net")), trust).model).__name__ == "Net"
    with pytest.raises(InputError, match=r"foreign\.make: is not a SequenceNetwork"):
        load_task(saved(target("model", "foreign.make")), trust)
    assert not (foreign / "called").exists()


@pytest.mark.parametrize("name", ["os.system", "seqclf_evil.Net", "seqclf"])
def test_nothing_but_a_model_of_this_package_is_called_without_trust(saved, name):
    with pytest.raises(InputError, match="would run code of the package"):
        load_task(saved(target("model", name)))


def test_a_run_resumes_with_a_package_that_its_config_names_and_imports_no_other(task, saved, foreign, batches):
    config = {"checkpoint": saved(target("model", "foreign.Net")), "trainer": {"max_epochs": 5}}
    with pytest.raises(InputError, match=r"another model \(model\._target_=foreign\.Net\)"):
        check_resumable(config, task(), batches)
    assert not (foreign / "imported").exists()
    check_resumable(config, task(model={"_target_": "foreign.Net", "residual_layers": 0}), batches)


def test_a_truncated_checkpoint_is_refused(saved):
    path = saved()
    content = path.read_bytes()
    for share in (0.1, 0.5, 0.99):
        path.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(InputError, match="is not a seqclf checkpoint"):
            load_task(path)


MISSING = object()
WRONG = [None, True, -1, 0.5, "x", [], {}, {"x": 1}, torch.zeros(2, 2), float("nan")]


def paths(value, path=()):
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(min(1, len(value))) if isinstance(value, list) else ():
        yield from paths(value[key], (*path, key))


@pytest.mark.parametrize("every", [61, pytest.param(5, marks=pytest.mark.soak)])
def test_a_mutated_checkpoint_works_or_is_refused(task, state, monkeypatch, tmp_path, every, batches):
    """The result of `torch.load` is mutated, not a file, so that many mutations are tried."""
    loaded = {}
    path = tmp_path / "good.ckpt"
    monkeypatch.setattr(torch, "load", lambda *_, **__: copy.deepcopy(loaded["state"]))
    model, refused = task(), 0

    def resume(path):
        check_resumable({"checkpoint": path, "trainer": {"max_epochs": 9}}, model, batches)

    changes = [(keys, wrong) for keys in paths(state) for wrong in [MISSING, *WRONG]]
    for keys, wrong in changes[::every]:
        changed = copy.deepcopy(state)
        above = changed
        for key in keys[:-1]:
            above = above[key]
        if wrong is MISSING:
            del above[keys[-1]]
        else:
            above[keys[-1]] = wrong
        loaded["state"] = changed
        for use in (load_task, resume):
            try:
                use(path)
            except InputError as error:
                refused += 1
                assert str(error).startswith("checkpoint=") and "\n" not in str(error), (keys, wrong)
            except Exception as error:
                pytest.fail(f"{keys} {wrong}: {type(error).__name__}: {error}")
    assert refused > len(changes) // every // 3, "the mutations reach what is checked"


def test_a_checkpoint_cannot_name_a_file_to_delete(task, saved, batches):
    def change(state):
        state["callbacks"] = {
            "ModelCheckpoint": {
                "dirpath": "/runs/one",
                "best_model_path": "/runs/one/best.ckpt",
                "kth_best_model_path": "/home/thesis.tex",
                "last_model_path": "",
                "best_k_models": {},
            }
        }

    with pytest.raises(InputError, match=r"/home/thesis\.tex is not in its folder /runs/one"):
        check_resumable({"checkpoint": saved(change), "trainer": {"max_epochs": 5}}, task(), batches)
