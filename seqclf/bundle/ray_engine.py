"""Prediction on Ray: actors predict, or explain, the windows of a source.

The driver reads the source, so every format, event table and query works as in one process. A result depends on its
window alone (see `BundleModel.predict_batch`), so the output is that of one process, whatever the number of actors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from seqclf.bundle import explanation, model
from seqclf.bundle.predictions import Result
from seqclf.bundle.ray_cluster import connected
from seqclf.bundle.ray_pool import ActorPool
from seqclf.bundle.ray_worker import WindowWorker, bundle_files
from seqclf.bundle.session import thread_count
from seqclf.bundle.windows import source_windows
from seqclf.data.reading.sources import Source


@dataclass(frozen=True)
class RayEngine:
    """Actors that predict with a bundle.

    Attributes:
        classifier: the bundle in the driver, whose schema the source is read by.
        pool: the actors.
        by_field: None to predict; to explain, see `explain_batch`.
    """

    classifier: model.BundleModel
    pool: ActorPool
    by_field: bool | None = None

    def results(self, source: Source) -> Iterator[Result]:
        """Predict, or explain, a source window by window, in order."""
        name, predicts = source.short_name, self.by_field is None
        rows, unit = (model.WINDOW_ROWS, "rows") if predicts else (explanation.WINDOW_ROWS, explanation.UNIT)
        windows = source_windows(self.classifier.schema, source, title=f"reading {name}", unit=unit, window_rows=rows)
        return self.pool.results(windows, f"{'predicting' if predicts else 'explaining'} {name}", unit)


@contextmanager
def ray_engine(
    classifier: model.BundleModel,
    *,
    address: str | None = None,
    actors: int | None = None,
    object_store_mb: int = 1000,
    threads: int = 1,
    cuda: bool = False,
    settings: Mapping[str, Any] = MappingProxyType({}),
    by_field: bool | None = None,
    worker: type[WindowWorker] = WindowWorker,
) -> Iterator[RayEngine]:
    """Start the actors, which end with the block.

    Args:
        classifier: the bundle.
        address: see `connected`.
        actors: number of actors; None for as many as the CPUs, or with `cuda` the GPUs, of the cluster allow.
        object_store_mb: see `connected`.
        threads: CPU threads of an actor, which takes as many CPUs.
        cuda: True to compute on one GPU per actor, False on CPUs.
        settings: arguments of the classifier of each actor, besides its device and threads.
        by_field: None to predict; to explain, see `explain_batch`.
        worker: class of the actors.

    Raises:
        InputError: see `connected`.
    """
    files = bundle_files(classifier)
    cpus = max(thread_count(None), (actors or 1) * threads)
    with connected(address, cpus=cpus, object_store_mb=object_store_mb) as (ray, where):
        device = "cuda" if cuda else "cpu"
        actor = ray.remote(worker).options(num_cpus=threads, num_gpus=int(cuda), max_restarts=0)
        arguments = ray.put(files), str(classifier.folder), {**settings, "threads": threads, "device": device}, by_field
        count = actors or _fitting(ray.cluster_resources(), threads, cuda)
        yield RayEngine(classifier, ActorPool(ray, lambda: actor.remote(*arguments), count, where), by_field)


def _fitting(resources: Mapping[str, float], threads: int, cuda: bool) -> int:
    """Return the number of actors that fit into a cluster. At least 1, because a cluster may grow on demand."""
    fitting = resources.get("CPU", 0) // threads
    return max(1, int(min(fitting, resources.get("GPU", 0)) if cuda else fitting))
