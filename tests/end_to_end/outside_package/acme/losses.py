"""A loss: logits (B, C) and labels (B,) → their mean cost."""

from torch import nn


class Margin(nn.Module):
    """Hinge loss of the margin between the label and the other classes."""

    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, logits, labels):
        return nn.functional.multi_margin_loss(logits, labels, margin=self.margin)
