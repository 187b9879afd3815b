"""A model that reads trees is refused before data without trees is read."""

from contextlib import nullcontext

import pytest

from seqclf.data.encoding.encoders import encoder_class, make_encoder
from seqclf.data.schema.schema import Field
from seqclf.errors import InputError
from seqclf.runs.prepare import check_tree_fields


def test_the_check_of_trees_knows_the_kind_of_declared_fields_and_of_built_encoders():
    model = {"encoder": {"_target_": "seqclf.models.tree_lstm.TreeLSTM"}}
    for kind, is_tree in (("tree", True), ("category", False)):
        for encoder in (encoder_class(kind), make_encoder(Field("x", kind, ("x",)))):
            with nullcontext() if is_tree else pytest.raises(InputError, match=r"TreeLSTM: reads trees"):
                check_tree_fields(model, {"x": encoder})
