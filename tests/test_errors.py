"""Errors hold their place, problem and remedy as data."""

import ast
import pickle
from pathlib import Path

import pytest
from torch.utils.data import DataLoader, Dataset

import seqclf
from seqclf.errors import InputError, RefusedValueError

PARTS = [("t.csv: row 2", "label is empty", "fix it"), (None, "nothing is left", None), ("key=1", "must be 2", None)]


@pytest.mark.parametrize(
    "url",
    [
        "https://host/t.csv?X-Amz-Credential=word&X-Amz-Signature=word",
        "https://account.blob.core.windows.net/c/t.csv?sv=1&sig=word",
        "https://storage.googleapis.com/b/t.csv?GoogleAccessId=word&Signature=word",
        "https://word@host/t.csv",
        "https://me:word@host/t.csv",
        "postgresql://me:w@word@host/runs",
        "mysql+pymysql://me:wo/word@host/runs",
        "https://me:wo#word@host/runs",
        "https://host/t.csv?word",
        "https://host/t.csv?a=word#token=word",
        "https://host/t.csv#word",
        "s3://b/o.foo?secret_key=word",
        "gs://b/t?X-Goog-Signature=word",
        "https://h/a.csv,https://me:word@h/b.csv",
    ],
)
def test_an_error_shows_no_credentials_of_a_url(url):
    error = InputError(f"data.train={url}", f"'{url}' is no file", f"write data.train='{url}'").within("a")
    assert not any("word" in part for part in (str(error), repr(error), *_parts(error)))
    assert "//" in error.where and error.problem.endswith("' is no file")


@pytest.mark.parametrize(
    "url",
    [
        "s3://b/?/year=2024/x.csv",
        "https://h/a@b/x.csv",
        "gcs://n/p-?.csv",
        "S3://b/t?.csv",
        "http://h:80/u/me@x.com/t.csv",
    ],
)
def test_a_url_without_credentials_is_shown(url):
    assert InputError(None, url).problem == url


class _Failing(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        raise InputError("t.csv: row 2", "label is empty", "fix it")


def _parts(error):
    return error.where, error.problem, error.remedy


@pytest.mark.parametrize("parts", PARTS)
def test_an_error_survives_pickling_with_its_parts(parts):
    error = InputError(*parts)
    restored = pickle.loads(pickle.dumps(error))
    assert _parts(restored) == parts and str(restored) == str(error)


def test_an_error_of_a_data_loader_worker_is_an_input_error():
    """PyTorch rebuilds it from the text of its traceback."""
    with pytest.raises(InputError, match="row 2: label is empty; fix it"):
        next(iter(DataLoader(_Failing(), num_workers=1)))


@pytest.mark.parametrize("parts", PARTS)
def test_a_place_and_a_remedy_are_added_to_an_error(parts):
    where, problem, remedy = parts
    outer = InputError(*parts).within("model.pt", "export it anew")
    assert _parts(outer) == (
        "model.pt" if where is None else f"model.pt: {where}",
        problem,
        "export it anew" if remedy is None else f"{remedy}; export it anew",
    )
    assert str(outer) == f"{outer.where}: {problem}; {outer.remedy}"
    assert _parts(InputError(*parts).within(None)) == parts
    assert _parts(InputError(*parts).with_remedy("give up")) == (where, problem, "give up")


def test_a_refused_value_gets_the_key_that_holds_it():
    error = RefusedValueError("must be below 1", "write 80 % as 0.8").at("decision.min_recall=80")
    assert _parts(error) == ("decision.min_recall=80", "must be below 1", "write 80 % as 0.8")


def test_no_error_of_the_package_is_one_text():
    """A text without its parts would have to be parsed by whoever needs the key or the remedy."""
    package = Path(seqclf.__file__).parent
    places = [
        f"{path.relative_to(package)}:{call.lineno}"
        for path in package.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "InputError"
        if len(call.args) == 1 and not isinstance(call.args[0], ast.Starred) and not call.keywords
    ]
    assert not places
