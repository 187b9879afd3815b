"""Kernels of the front end, against plain loops."""

import numpy as np
import torch
from models.auto.conftest import NUMBER, random_split, training_rows

from seqclf.models.auto.features import make_views
from seqclf.models.auto.front_end import FrontEnd
from seqclf.models.auto.kernel_bank import KERNELS, TAPS, KernelBank


def views_of(lengths, channels=3, seed=0):
    torch.manual_seed(seed)
    lengths = torch.tensor(lengths)
    values = torch.randn(len(lengths), channels, int(lengths.max()))
    return make_views(values, lengths), torch.arange(int(lengths.max())) < lengths[:, None], lengths


def test_a_hit_is_the_clipped_distance_of_a_convolution_from_its_bias():
    bank = KernelBank(3, [1, 3], biases=2, seed=0)
    views, mask, _ = views_of([20, 6])
    taps = bank.taps.clone().double()  # before the fit, -1 and 2 for the channels that a kernel reads
    bank.fit(views, mask)
    hits = list(bank.hits(views, mask))
    for group, dilation in enumerate(bank.dilations):
        for view, kernel in ((0, 0), (1, 40), (2, 83)):
            weight = taps[group, view, kernel].reshape(TAPS, 3)
            read = weight[0] != 0
            np.testing.assert_array_equal(weight[:, read].T.numpy(), np.tile(KERNELS[kernel], (int(read.sum()), 1)))
            padded = torch.nn.functional.pad(views[:, view].double(), (4 * dilation, 4 * dilation))
            outputs = torch.zeros(2, 20, dtype=torch.float64)
            for tap in range(TAPS):
                outputs += (weight[tap][None, :, None] * padded[:, :, tap * dilation : tap * dilation + 20]).sum(1)
            inside = outputs[mask]
            deviation = max(0.01, float(inside.std(unbiased=False)))
            at = int(bank.quantiles.reshape(2, 3, 84, 2)[group, view, kernel, 1] * len(inside))
            bias = inside.sort().values[at]
            expected = (10 * (outputs - bias) / deviation + 0.5).clamp(0, 1) * mask
            found = hits[group][1][view * 84 + kernel]
            torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-4)


def test_biases_divide_the_outputs_as_their_quantiles_say():
    bank = KernelBank(3, [1], biases=4, seed=0)
    views, mask, _ = views_of([200] * 8)
    bank.fit(views, mask)
    above = torch.stack(next(bank.hits(views, mask))).sum((2, 3)) / mask.sum()  # (4, 252)
    expected = 1 - torch.from_numpy(bank.quantiles.reshape(252, 4).T)
    torch.testing.assert_close(above.double(), expected, rtol=0, atol=0.06)


def test_windows_and_means_are_averages_of_hits_and_numbers():
    front = FrontEnd([NUMBER], window=4, dilations=[1, 2], biases=2, seed=0)
    rows = training_rows(random_split([NUMBER]))
    front.fit(rows, seed=0)
    (batch,) = rows.batches(np.array([3, 11, 30]), max_tokens=10_000)
    reading = front(batch.fields, batch.lengths)
    values = batch.fields["value"].transpose(1, 2)
    mask = torch.arange(values.shape[2]) < batch.lengths[:, None]
    hits = list(front.bank.hits(make_views(values, batch.lengths), mask))
    scale, mean = front.window_scale, front.window_mean
    for row, length in enumerate(batch.lengths.tolist()):
        means = torch.cat([torch.stack([hit[:, row, :length].mean(1) for hit in group], 1).flatten() for group in hits])
        torch.testing.assert_close(reading.means[row], means, rtol=0, atol=1e-5)
        for window in range(-(-length // 4)):
            part = slice(4 * window, min(4 * window + 4, length))
            raw = torch.cat(
                [*(group[0][:, row, part].mean(1) for group in hits), values[row, :, part].clamp(-20, 20).mean(1)]
            )
            expected = ((raw - mean) * scale).clamp(-8, 8)
            torch.testing.assert_close(reading.windows[row, window], expected, rtol=0, atol=1e-4)
    assert reading.lengths.tolist() == [-(-length // 4) for length in batch.lengths.tolist()]


def test_scaled_windows_of_training_rows_have_no_mean_and_a_deviation_of_at_most_one():
    front = FrontEnd([NUMBER], window=1, dilations=[1], biases=1, seed=0)
    rows = training_rows(random_split([NUMBER], rows=200))
    front.fit(rows, seed=0)
    windows = torch.cat(
        [
            reading.windows[torch.arange(reading.windows.shape[1]) < reading.lengths[:, None]]
            for reading in (front(batch.fields, batch.lengths) for batch in rows.batches())
        ]
    )
    assert windows.mean(0).abs().max() < 0.2
    assert windows.std(0).max() < 1.2 and windows.std(0).median() > 0.8
