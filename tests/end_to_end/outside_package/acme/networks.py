"""A network of its own, without the embedding, pooling and head of seqclf's classifier."""

import torch
from torch import nn

from seqclf.extend import SequenceNetwork


class Averages(SequenceNetwork):
    """Averages the vectors of all tokens of all fields."""

    def __init__(self, fields, num_classes, *, hidden_size, depth):
        super().__init__()
        layers = {
            field["name"]: nn.Embedding(field["size"], hidden_size)
            if field["kind"] == "category"
            else nn.Linear(field["width"], hidden_size)
            for field in fields
        }
        self.fields = nn.ModuleDict(layers)
        hidden = [nn.Sequential(nn.Linear(hidden_size, hidden_size), nn.ReLU()) for _ in range(depth)]
        self.layers = nn.Sequential(*hidden)
        self.output = nn.Linear(hidden_size, num_classes)

    def forward(self, fields, lengths, host_lengths):
        tokens = sum(layer(fields[name]) for name, layer in self.fields.items())
        is_token = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        mean = torch.where(is_token[..., None], tokens, 0.0).sum(dim=1) / lengths[:, None]
        return self.output(self.layers(mean))
