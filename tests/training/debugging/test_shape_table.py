"""Every module that runs stands in the table once, with the shapes of the first batch."""

import pytest

from seqclf.training.debugging.shape_table import ShapeTable

from ..conftest import HEADS


@pytest.fixture
def shapes(task, fit):
    """`shapes(change, model={…})` trains one step and returns the table."""

    def run(change=lambda module: None, **model):
        module, table = task(model=model), ShapeTable()
        change(module)
        fit(
            module,
            callbacks=[table],
            batching={"max_tokens": 600, "max_sequences": 30, "overhead": None},
            max_steps=1,
            limit_val_batches=0,
            enable_checkpointing=False,
        )
        assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
        return table

    return run


def test_inputs_outputs_and_weights_of_each_module_are_recorded(shapes, splits):
    table = shapes()
    rows, longest = table.batch.rows, table.batch.longest
    assert 1 < rows <= 30 and table.batch.longest_row == longest
    model = table.shapes["model"]
    assert model["class_name"] == "SequenceClassifier"
    assert model["input"] == f"({rows}, {longest}), ({rows}, {longest}, 2), ({rows})"
    assert (model["output"], model["dtype"]) == (f"({rows}, 3)", "float32")
    assert model["weights"] == sum(row["weights"] for name, row in table.shapes.items() if name.count(".") == 1)
    assert table.shapes["model.encoder.forward_layers.0"]["output"].startswith(
        f"({rows}, {longest}, 8), (1, {rows}, 8)"
    )
    assert table.shapes["model.encoder.dropout"]["input"] == "did not run"
    assert f"padded to {longest}: {table.batch.padding:.1%} of {rows * longest} tokens are padding" in str(table.batch)
    assert model["calls"] == 1, "that of the first batch"
    headings = [column.header for column in table.table().columns]
    assert headings == ["module", "class", "input", "output", "dtype", "weights"]
    assert cells(table, "module")[:2] == ["model", "model.embedding"]
    assert cells(table, "weights")[0] == f"{model['weights']:,}"


def cells(table, heading):
    """The cells of a column of the printed table."""
    return next(list(column.cells) for column in table.table().columns if column.header == heading)


def test_packed_sequences_ensembles_and_repeated_modules_have_their_shapes(shapes):
    table = shapes(layout="packed", members=2)
    tokens = table.batch.tokens
    assert table.shapes["model.members.1.encoder.forward_layers.0"]["input"] == f"packed ({tokens}, 12)"
    assert table.shapes["model"]["output"] == f"(2, {table.batch.rows}, 3)"
    assert not any("members.1" in name for name in cells(table, "module"))
    assert table.table().caption.startswith("1 more networks")


def test_the_rows_that_a_network_is_fitted_to_before_are_no_batch(shapes):
    table = shapes(**HEADS)
    rows = {row["input"].partition(",")[0] for row in table.shapes.values()} - {"did not run", "()"}
    assert rows == {f"({table.batch.rows}"}
