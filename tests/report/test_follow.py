"""A follower sees everything once, in whatever bits it is written and read, and after a restart."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quartet.report.follow import Follower
from quartet.telemetry.record import Recorder

steps = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.sampled_from((0.0, 3.0, 70.0, 4000.0))),
        st.tuples(st.sampled_from(("read", "restart the follower", "restart the writer")), st.just(0.0)),
    ),
    max_size=40,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps)
def test_every_record_is_seen_once(tmp_path_factory, clock, steps) -> None:
    run, written, seen, spans = tmp_path_factory.mktemp("run"), 0, 0, []
    recorder, follower = Recorder(run, "worker", clock=clock), Follower(run)
    for what, pause in [*steps, ("close", 0.0), ("read", 0.0), ("read", 0.0)]:
        clock.now += pause
        if what == "record":
            with recorder.span("generate", number=written):
                recorder.metric("rollout", reward=1.0)
            written += 1
        elif what == "read":
            recorder.flush()
            news = follower.read()
            seen += sum(sums.slot.series["rollout/reward"].count for sums in news.sums)
            spans += [span.fields["number"] for span in news.spans]
        elif what == "restart the follower":
            follower = Follower(run, follower.cursor)
        else:
            recorder.close()
        if what == "restart the writer":
            recorder = Recorder(run, "worker", clock=clock)
    assert seen == written
    assert sorted(spans) == list(range(written))
