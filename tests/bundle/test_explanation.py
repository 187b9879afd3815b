"""Explanations of tables and files: a row per token, refused rows, windows and Python values."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf.bundle import explanation
from seqclf.bundle.explanation import explain_source
from seqclf.data.reading.sources import Source

HEAD = ["id", "prediction", "probability", "position", "token", "contribution"]


def test_a_table_gives_a_row_per_token(exported, classifier):
    loaded, sequences = classifier("card"), exported("card").sequences
    frame = pd.DataFrame(sequences)
    explained = loaded.explain(frame)
    assert list(explained) == [*HEAD, "contribution_shop", "contribution_amount", "error"]
    rows = loaded.explain(sequences)
    assert explained["token"].tolist() == [token for row in rows for token in row["tokens"]]
    np.testing.assert_allclose(
        explained["contribution"], np.concatenate([row["contributions"] for row in rows]), atol=1e-5
    )
    np.testing.assert_allclose(
        explained["contribution_amount"],
        np.concatenate([row["contributions_by_field"]["amount"] for row in rows]),
        atol=1e-5,
    )
    assert explained.groupby("id")["prediction"].first().tolist() == [row["prediction"] for row in rows]
    assert explained["position"].tolist() == [
        position for row in sequences for position in range(1, len(row["shop"]) + 1)
    ]
    assert list(loaded.explain(frame, by_field=False)) == [*HEAD, "error"]
    assert isinstance(loaded.explain(pl.DataFrame(sequences)), pl.DataFrame)


def test_refused_rows_have_one_row_with_the_error(classifier):
    loaded = classifier("events")
    explained = loaded.explain(pa.table({"events": [[1, 2], [], None, [3]]})).to_pylist()
    assert [row["id"] for row in explained] == [1, 1, 2, 3, 4]
    assert [row["position"] for row in explained] == [1, 2, None, None, 1]
    for row in explained[2:4]:
        assert row["error"] and all(row[name] is None for name in HEAD[1:])
    in_memory = loaded.explain([[1, 2], "1 2", [3]])
    assert in_memory[1]["error"] == "events is not a list of integers"
    assert [in_memory[1][key] for key in ("prediction", "tokens", "contributions", "contributions_by_field")] == [
        None
    ] * 4
    assert in_memory[2]["contributions"] == pytest.approx([explained[4]["contribution"]], abs=1e-5)


def test_only_refused_rows_or_none_are_explained_too(classifier):
    loaded = classifier("card")
    assert [row["tokens"] for row in loaded.explain([None, {}])] == [None, None]
    assert loaded.explain([]) == []
    empty = loaded.explain(pd.DataFrame({"shop": pd.Series([], dtype=object), "amount": pd.Series([], dtype=object)}))
    assert len(empty) == 0 and list(empty)[: len(HEAD)] == HEAD


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("tokens", [1, 50])
def test_explanations_of_a_file_ignore_windows(exported, classifier, tmp_path, monkeypatch, rows, tokens):
    loaded, sequences = classifier("events"), [*exported("events").sequences[:20], [], [4, 4]]
    pq.write_table(pa.table({"events": sequences}), tmp_path / "new.parquet")
    expected = loaded.explain(pa.table({"events": sequences}))
    monkeypatch.setattr(explanation, "WINDOW_ROWS", rows)
    monkeypatch.setattr(explanation, "WINDOW_TOKENS", tokens)
    parts = list(explain_source(loaded, Source(str(tmp_path / "new.parquet"), "input"), by_field=True))
    assert len(parts) >= len(sequences) / rows
    explained = pa.Table.from_batches([part.table for part in parts])
    assert explained.drop_columns(["contribution", "probability"]) == expected.drop_columns(
        ["contribution", "probability"]
    )
    np.testing.assert_allclose(explained["contribution"], expected["contribution"], atol=1e-5)


def test_positions_count_tokens_before_truncation(classifier):
    """The text bundle keeps the last 8 tokens."""
    text = "walks house rain under green house walks rain ! green"
    explained = classifier("text").explain(pa.table({"text": [text, "rain"]})).to_pylist()
    assert [row["position"] for row in explained] == [*range(3, 11), 1]
    assert [row["token"] for row in explained[:2]] == ["rain", "under"]
