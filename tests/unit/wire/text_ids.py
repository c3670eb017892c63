"""Uuids in Kafka's text form."""

from __future__ import annotations

from base64 import urlsafe_b64encode

from hypothesis import strategies as st

from pyreplog.wire import NO_ID

__all__ = ["ids"]


def ids() -> st.SearchStrategy[str]:
    """Any uuid, all zeros among them."""
    return st.just(NO_ID) | st.binary(min_size=16, max_size=16).map(lambda data: urlsafe_b64encode(data)[:22].decode())
