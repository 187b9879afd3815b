"""Recurrent encoders: LSTM, GRU and RNN layers, cells, and layers of one's own."""
