"""Recurrent cells of the literature, for the encoder `CellEncoder`."""
