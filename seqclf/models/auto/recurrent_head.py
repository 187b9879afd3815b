"""Recurrent head: an LSTM over windows of kernel outputs, numbers and embedded ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.data.field_spec import FieldSpec, id_specs, number_specs, scaled_flags, token_specs
from seqclf.models.auto.config import RecurrentConfig
from seqclf.models.auto.front_end import FrontEnd, FrontOutputs
from seqclf.models.auto.head import Head
from seqclf.models.embedding import FieldEmbedding, StaticFields
from seqclf.models.network import Fields, HostLengths
from seqclf.models.pooling import Pooling, token_mask
from seqclf.models.rnn.recurrent import Recurrent, RecurrentStep
from seqclf.models.streaming import HeadStep, State

KERNEL_DROPOUT = 0.1  # fraction of the input channels that a training batch does not see


class MaskedNorm(nn.Module):
    """Batch normalization over the tokens of a batch that are not padding.

    `momentum`: weight of the statistics of a batch in the running ones, which evaluation uses, so that the output for a
    token depends only on the token. `eps` bounds the factor of a channel that is nearly constant.

    >>> norm = MaskedNorm(2).eval()
    >>> norm(torch.ones(1, 3, 2), torch.ones(1, 3, 1)).shape
    torch.Size([1, 3, 2])
    """

    averaged_buffers = ("mean", "variance")  # buffers that belong to the averaged weights

    mean: Tensor
    variance: Tensor

    def __init__(self, size: int, momentum: float = 0.1, eps: float = 1e-3):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.momentum, self.eps = momentum, eps
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))

    def forward(self, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the normalized `values` (B, T, C), or (B, C) for one vector of each sequence. Padding must be finite.

        `mask`: (B, T, 1) float, 1 for tokens and 0 for padding. None for vectors (B, C).
        """
        mean, variance = self.mean, self.variance
        # A batch of one vector has no variance.
        if self.training and (mask is not None or len(values) > 1):
            mean, variance = self._statistics(values, mask)
            with torch.no_grad():
                self.mean.lerp_(mean, self.momentum)
                self.variance.lerp_(variance, self.momentum)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return values * scale + (self.bias - mean * scale)

    @staticmethod
    def _statistics(values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if mask is None:
            return values.mean(0), values.var(0, unbiased=False)
        count = mask.sum()
        mean = (values * mask).sum((0, 1)) / count
        return mean, ((values - mean) * mask).square().sum((0, 1)) / count


class RecurrentHead(Head):
    """Windows and embedded ids → linear layer → batch normalization → recurrent layers → mean and max → logits.

    Static fields are joined to the mean and max (see `StaticFields`).
    """

    reads_windows = True

    noise: Tensor

    def __init__(self, front: FrontEnd, fields: Sequence[FieldSpec], num_classes: int, config: RecurrentConfig):
        super().__init__(front, fields, num_classes)
        self.window, self.inputs = front.window, front.window_size
        with_ids = id_specs(token_specs(fields))
        sizes: dict[str, Any] = {"embedding_size": config.embedding_size, "token_dropout": config.token_dropout}
        self.embedding = FieldEmbedding(with_ids, **sizes, number_noise=0.0) if with_ids else None
        embedded = self.embedding.size if self.embedding is not None else 0
        size, reads = config.projection_size, config.convolution
        self.project = nn.Linear(self.inputs + embedded, size)
        if self.embedding is not None and front.bank is None:
            # A number is one input beside the many of an id, and would hardly be heard at first.
            with torch.no_grad():
                self.project.weight[:, : self.inputs] *= config.embedding_size**0.5
        self.norm = MaskedNorm(size)
        self.convolution = nn.Conv1d(size, size, reads, bias=False) if reads else None
        self.convolution_norm = MaskedNorm(size) if reads else None
        # Windows before and after a window that the convolution reads; none after it in one direction.
        self.margins = (reads // 2, reads - 1 - reads // 2) if config.bidirectional else (reads - 1, 0)
        self.recurrent = Recurrent(
            size,
            cell=config.cell,
            hidden_size=config.hidden_size,
            layers=config.layers,
            residual_layers=config.residual_layers,
            bidirectional=config.bidirectional,
            dropout=config.feature_dropout,
        )
        self.pooling = Pooling("mean+max", size + self.recurrent.size, self.recurrent.backward_size)
        self.pooled_norm = MaskedNorm(self.pooling.size)
        self.static = StaticFields(fields, self.pooling.size)
        self.output = nn.Linear(self.static.size, num_classes)
        self.dropout, self.feature_dropout = nn.Dropout(config.dropout), nn.Dropout(config.feature_dropout)
        # Masks, sines and other channels that are not standardized get no noise.
        scaled = [flag for spec in number_specs(token_specs(fields)) for flag in scaled_flags(spec)]
        noise = config.number_noise if front.window == 1 else 0.0
        # The noise (D,) of the numbers, which are the last channels of a window.
        self.register_buffer("noise", noise * torch.tensor(scaled, dtype=torch.float32), persistent=False)
        self.has_noise = bool(noise and any(scaled))

    def of_windows(self, windows: Tensor, first: int) -> Tensor:
        """Return the part (B, N, P) of the linear layer that reads the channels of `windows` (B, N, K')."""
        return functional.linear(windows, self.project.weight[:, first : first + windows.shape[2]])

    def forward(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths, reading: FrontOutputs) -> Tensor:
        values, mask = self.normed(self.projected(fields, lengths, reading), reading.lengths)
        lengths = reading.lengths
        host_lengths = None if host_lengths is None else (host_lengths + self.window - 1) // self.window
        if self.convolution is not None:
            inputs = functional.pad(self.feature_dropout(values), (0, 0, *self.margins))
            values = self.convolved(inputs, values, mask)
        outputs, lengths, _ = self.recurrent(self.feature_dropout(values), lengths, host_lengths)
        pooled = self.pooling(torch.cat([values, outputs], dim=-1), lengths)
        return self.output(self.dropout(self.static(self.pooled_norm(pooled), fields)))

    def normed(self, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the normalized values (B, N, P), 0 at padding, and the mask (B, N, 1)."""
        inside = token_mask(lengths, values.shape[1])[..., None]
        mask = inside.to(values.dtype)
        # Padding may be NaN, so it is replaced and not multiplied by 0.
        return self.norm(torch.where(inside, values, 0.0), mask).relu() * mask, mask

    def convolved(self, inputs: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Return `values` (B, N, P) with the residual convolution of `inputs`, which have the margins of its kernel."""
        assert self.convolution is not None and self.convolution_norm is not None
        found = self.convolution(inputs.transpose(1, 2)).transpose(1, 2)
        return (values + self.convolution_norm(found, mask).relu()) * mask

    def embedding_layer(self) -> nn.Module:
        return self.output

    def streaming(self) -> RecurrentHeadStep | None:
        # A second direction starts at the last token, which is in the last chunk.
        return None if self.recurrent.backward_size else RecurrentHeadStep(self)

    def projected(self, fields: Fields, lengths: Tensor, reading: FrontOutputs) -> Tensor:
        """Return the values (B, N, P) of the linear layer."""
        weight = self.project.weight
        if self.training:
            weight = weight * (torch.rand(weight.shape[1], device=weight.device) >= KERNEL_DROPOUT)
        total: Tensor | None = None
        if self.inputs:
            windows = reading.windows
            total = windows if reading.is_projected else functional.linear(windows, weight[:, : self.inputs])
            if self.training and self.has_noise:
                noise = self.noise * torch.randn(*windows.shape[:2], len(self.noise), device=windows.device)
                total = total + functional.linear(noise, weight[:, self.inputs - len(self.noise) : self.inputs])
        if self.embedding is not None:
            vectors = self.embedding(fields)
            if self.window > 1:
                inside = token_mask(lengths, vectors.shape[1])[..., None]
                vectors = self._window_means(torch.where(inside, vectors, 0.0), inside.to(vectors.dtype))
            of_ids = functional.linear(vectors, weight[:, self.inputs :])
            total = of_ids if total is None else total + of_ids
        assert total is not None
        return total + self.project.bias

    def _window_means(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return the means (B, N, D) of the vectors (B, T, D) of the tokens of each window."""
        both = torch.cat([vectors, mask], dim=-1).transpose(1, 2)
        pooled = functional.avg_pool1d(functional.pad(both, (0, self.window - 1)), self.window).transpose(1, 2)
        return pooled[..., :-1] / pooled[..., -1:].clamp(min=1e-6)


class RecurrentHeadStep(HeadStep):
    """Streaming form of a unidirectional `RecurrentHead`. It runs only inside the ONNX exporter."""

    def __init__(self, head: RecurrentHead):
        super().__init__(head)
        self.recurrent = recurrent = cast(RecurrentStep, head.recurrent.streaming())
        margin = [State("convolution", (head.margins[0], head.project.out_features))] if head.margins[0] > 0 else []
        self.states = [*margin, *recurrent.states, *head.pooling.states]

    def forward(
        self, fields: Fields, lengths: Tensor, reading: FrontOutputs, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        head, remaining, after = self.head, list(states), []
        values, mask = head.normed(head.projected(fields, lengths, reading), lengths)
        if head.convolution is not None:
            inputs = values
            if head.margins[0]:
                inputs = torch.cat([remaining.pop(0), values], dim=1)
                at = lengths[:, None] + torch.arange(head.margins[0], device=lengths.device)
                after.append(inputs.gather(1, at[..., None].expand(-1, -1, values.shape[2])))
            values = head.convolved(inputs, values, mask)
        count = len(self.recurrent.states)
        outputs, of_recurrent = self.recurrent(values, lengths, remaining[:count])
        pooled, of_pooling = head.pooling.run(torch.cat([values, outputs], dim=-1), lengths, remaining[count:])
        return head.output(head.static(head.pooled_norm(pooled), fields)), [*after, *of_recurrent, *of_pooling]
