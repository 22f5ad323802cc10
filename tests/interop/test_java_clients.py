"""The Java client and AdminClient against the cluster under test."""

import harness
import pytest

pytestmark = pytest.mark.client_timing(
    reason="the Java clients give up a request after 10 s, a cold JVM on two cores included")


@pytest.mark.quick
def test_admin_client(sut, unique):
    lines = harness.java("AdminRound", sut.bootstrap, unique("admin"), sut.replication)
    assert lines.count("ok ") >= 25, lines


@pytest.mark.quick
def test_producer_and_consumer(sut, unique):
    lines = harness.java("ClientRound", sut.bootstrap, unique("round"), sut.replication)
    assert lines.count("ok ") == 10, lines
