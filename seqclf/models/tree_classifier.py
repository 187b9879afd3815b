"""Classifier of trees, which may also learn from labels of inner nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from seqclf.config.argument_types import checks_values
from seqclf.config.options import NonNegative
from seqclf.data.field_spec import NODE_LABELS, PARENTS, FieldSpec
from seqclf.models.classifier import SequenceClassifier
from seqclf.models.training_loss import Loss, TrainingLoss


class TreeClassifier(SequenceClassifier):
    """A `SequenceClassifier` of trees. In training every node with a label is classified too, by the same head.

    `node_loss`: weight of such a node in the mean of all losses, against 1 of a tree. Nodes count whose label, as a
    text, is one of the classes: `ParentsSpec.node_classes`. `arguments`: those of `SequenceClassifier` but `pooling`,
    as the root is the only output, and `number_noise`, as a tree has no numbers.
    """

    fixed_arguments: ClassVar[Mapping[str, Any]] = MappingProxyType({"pooling": "last", "number_noise": 0.0})

    node_classes: Tensor

    @checks_values("model")
    def __init__(
        self, fields: Sequence[FieldSpec], num_classes: int, *, node_loss: NonNegative = 1.0, **arguments: Any
    ):
        super().__init__(fields, num_classes, **self.fixed_arguments, **arguments)
        self.node_loss = node_loss
        codes = next((field["node_classes"] for field in fields if field["kind"] == "parents"), [])
        # Of nodes without a label. Not persistent: it follows from the fields, which travel in the checkpoint.
        self.register_buffer("node_classes", torch.tensor([*codes, -1]), persistent=False)

    def training_loss(
        self,
        fields: Mapping[str, Tensor],
        lengths: Tensor,
        host_lengths: np.ndarray | None,
        labels: Tensor,
        loss: Loss,
    ) -> TrainingLoss:
        """See `SequenceNetwork.training_loss`."""
        embedded = self.embedding_dropout(self.embedding(fields))
        roots, nodes = self.encoder.node_states(embedded, lengths, fields[PARENTS])
        logits = self.head(roots).float()
        cost = total = loss(logits, labels)
        if self.node_loss and NODE_LABELS in fields:
            codes = self.node_classes[fields[NODE_LABELS].flatten().index_select(0, nodes.positions)]
            labelled = (codes >= 0).nonzero()[:, 0]
            if len(labelled):
                node_logits = self.head(nodes.states.index_select(0, labelled)).float()
                weight = self.node_loss * len(labelled)
                of_nodes = loss(node_logits, codes[labelled])
                total = (len(labels) * cost + weight * of_nodes) / (len(labels) + weight)
        return TrainingLoss(logits, cost, total)
