"""A local server with the interface of S3, and credentials for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

SECRET = "hush-4711-hush"
BUCKET = "bucket"


class Store(NamedTuple):
    """`client`: of boto3. `environment`: variables that name the server and the credentials."""

    client: Any
    environment: dict[str, str]

    def put(self, key: str, content: bytes) -> str:
        """Write an object and return its URL."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)
        return f"s3://{BUCKET}/{key}"

    def list_keys(self, prefix: str = "") -> list[str]:
        listed = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return [entry["Key"] for entry in listed.get("Contents", [])]

    def get(self, key: str) -> bytes:
        return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()


@contextmanager
def local_store() -> Iterator[Store]:
    """Start a server with an empty bucket, and end it with the block."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        login = {"aws_access_key_id": "someone", "aws_secret_access_key": SECRET}
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **login)
        client.create_bucket(Bucket=BUCKET)
        variables = {name.upper(): value for name, value in login.items()}
        yield Store(client, {**variables, "AWS_ENDPOINT_URL": endpoint, "AWS_DEFAULT_REGION": "us-east-1"})
    finally:
        server.stop()
