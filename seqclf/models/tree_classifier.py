"""Tree classifier, which can also be trained with labels of single nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from seqclf.data.field_spec import NODE_LABELS, PARENTS, FieldSpec, tree_spec
from seqclf.models.classifier import EncoderClassifier
from seqclf.models.network import Fields, HostLengths, Loss, TrainingLoss, loss_of_rows
from seqclf.settings.base import NonNegative


class TreeClassifier(EncoderClassifier):
    """A `EncoderClassifier` of trees, which in training also predicts the class of every node that has a label.

    The loss is a weighted mean over trees, of weight 1, and labelled nodes, of weight `node_loss`. A node is labelled
    if the text of its label is the name of a class (see `ParentsSpec.node_classes`). `arguments`: those of
    `EncoderClassifier`, except `pooling`, as the state of the root is the only output, and `number_noise`, as trees
    have no numeric fields.
    """

    fixed_arguments: ClassVar[Mapping[str, Any]] = MappingProxyType({"pooling": "last", "number_noise": 0.0})

    node_classes: Tensor

    def __init__(
        self, fields: Sequence[FieldSpec], num_classes: int, *, node_loss: NonNegative = 1.0, **arguments: Any
    ):
        super().__init__(fields, num_classes, **self.fixed_arguments, **arguments)
        self.node_loss = node_loss
        tree = tree_spec(fields)
        codes = tree["node_classes"] if tree else []
        # The last entry, with the value -1, stands for nodes without a label.
        self.register_buffer("node_classes", torch.tensor([*codes, -1]), persistent=False)

    def training_loss(
        self, fields: Fields, lengths: Tensor, host_lengths: HostLengths, labels: Tensor, loss: Loss
    ) -> TrainingLoss:
        embedded = self.embedding_dropout(self.embedding(fields))
        roots, states, positions = self.encoder.node_states(embedded, lengths, fields[PARENTS])
        logits = self.head(roots, fields).float()
        cost = total = loss(logits, labels)
        if self.node_loss and NODE_LABELS in fields:
            codes = self.node_classes[fields[NODE_LABELS].flatten().index_select(0, positions)]
            labelled = (codes >= 0).nonzero()[:, 0]
            if len(labelled):
                row = positions.index_select(0, labelled) // fields[PARENTS].shape[1]
                of_rows = {name: fields[name].index_select(0, row) for name in self.static.names}
                node_logits = self.head(states.index_select(0, labelled), of_rows).float()
                weight = self.node_loss * len(labelled)
                of_nodes = loss_of_rows(loss, row)(node_logits, codes[labelled])
                total = (len(labels) * cost + weight * of_nodes) / (len(labels) + weight)
        return TrainingLoss(logits, cost, total)
