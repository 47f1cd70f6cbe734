"""Addresses that pages of a browser may reach."""

import pytest

from quartet.env.reach import Reach
from quartet.errors import ConfigError


def test_an_address_whose_port_is_no_number_is_refused_with_advice():
    with pytest.raises(ConfigError, match=r"'127\.0\.0\.1:\*' is no address .*\n.*env\.reachable"):
        Reach(["127.0.0.1:*"])
    assert "MAP 127.0.0.1:80 127.0.0.1:80" in Reach(["127.0.0.1:80"]).flags()[0]
