"""An endpoint: its address, its key and its deadlines are right, or it is not made."""

from __future__ import annotations

import pytest

from fixtures.client.endpoint import Endpoint
from fixtures.client.wire import Deadlines


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1/"]
)
def test_an_endpoint_is_the_same_with_and_without_v1(url):
    endpoint = Endpoint(url, "secret-key", "m")
    assert endpoint == Endpoint("http://127.0.0.1:8000", "secret-key", "m")
    assert endpoint.openai_base_url == "http://127.0.0.1:8000/v1"
    assert endpoint.address == ("127.0.0.1", 8000)
    assert "secret" not in repr(endpoint)


def test_an_endpoint_below_a_path_keeps_it():
    endpoint = Endpoint("https://host.example/team/v1", None, "m")
    assert endpoint.path("/metrics") == "/team/metrics"
    assert endpoint.address == ("host.example", 443)
    assert endpoint.secure


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://u:p@h/", "http://h/?q=1"]
)
def test_a_base_url_that_is_none_raises(url):
    with pytest.raises(ValueError, match="base_url"):
        Endpoint(url, None, "m")


@pytest.mark.parametrize("key", ["a\r\nX: y", "schlüssel"])
def test_a_key_that_would_break_the_header_raises(key):
    with pytest.raises(ValueError, match="api_key"):
        Endpoint("http://h", key, "m")


@pytest.mark.parametrize("name", ["connect_s", "first_byte_s", "silence_s", "total_s"])
def test_a_deadline_of_nothing_raises(name):
    with pytest.raises(ValueError, match=name):
        Deadlines(**{name: 0})
