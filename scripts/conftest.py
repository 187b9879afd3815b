"""A fresh data cache for the tests of the scripts."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set SEQCLF_CACHE to a temporary folder, which the commands that the scripts start inherit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQCLF_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
