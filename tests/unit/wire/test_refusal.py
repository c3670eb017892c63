"""A refusal answers every kind of request with its own kind of response, in which each part has the code."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyreplog.wire import ErrorCode, refusal
from pyreplog.wire.binary import Writer
from pyreplog.wire.codec import encode_value
from pyreplog.wire.layouts import APIS, LAYOUTS, Api
from tests.unit.wire.values import values

FETCH = 1
CODE = ErrorCode.NOT_CONTROLLER


def codes(value: Any) -> list[int]:
    """Return every error code in ``value``."""
    if isinstance(value, (list, tuple)):
        return [code for item in value for code in codes(item)]
    if not is_dataclass(value):
        return []
    own = getattr(value, "error_code", None)
    found: list[int] = [] if own is None else [own]
    return found + [code for field in fields(value) for code in codes(getattr(value, field.name))]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.request.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_every_request_is_refused(api: Api, data: st.DataObject) -> None:
    """The answer is of the request's kind and can be sent, and says the code if the request has any part."""
    body = data.draw(values(api.request.__name__))
    found = refusal(body, CODE, "go elsewhere")
    if found is None:
        assert getattr(body, "acks", None) == 0
        return
    assert type(found) is api.response
    encode_value(Writer(), found)
    said = codes(found)
    assert set(said) <= {0, CODE}
    if "error_code:int16" in LAYOUTS[api.response.__name__].split() and api.key != FETCH:
        assert said[0] == CODE  # the code of the message as a whole


def test_unknown_requests_are_not_refused() -> None:
    """There is no answer to a value that is not a request."""
    assert refusal(object(), CODE, "go elsewhere") is None
