"""Encoders with a recurrent layer."""

from seqclf.extend import MaskedLSTM, SequenceEncoder


class StackedLSTM(SequenceEncoder):
    """An LSTM in two directions that ignores padding."""

    def __init__(self, input_size, *, hidden_size, layers):
        super().__init__()
        self.lstm = MaskedLSTM(input_size, hidden_size, layers=layers, bidirectional=True)
        self.size, self.backward_size = self.lstm.size, self.lstm.backward_size

    def forward(self, tokens, lengths, host_lengths):
        return self.lstm(tokens, lengths)[0], lengths, host_lengths
