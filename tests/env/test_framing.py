"""Messages of a byte stream: whole, in order, and bounded."""

from hypothesis import given
from hypothesis import strategies as st

from quartet.env.framing import MAX_MESSAGE_BYTES, TAIL_BYTES, Framer

MESSAGE = st.binary(max_size=20).map(lambda data: data.replace(b"\0", b"x"))


@given(messages=st.lists(MESSAGE, max_size=8), chunk_bytes=st.integers(1, 30))
def test_every_message_comes_out_whole_however_it_was_cut(messages, chunk_bytes):
    stream = b"".join(message + b"\0" for message in messages)
    framer = Framer()
    chunks = [stream[start : start + chunk_bytes] for start in range(0, len(stream), chunk_bytes)]
    frames = [frame for chunk in chunks for frame in framer.feed(chunk)]
    assert [bytes(frame.data) for frame in frames] == messages
    assert all(frame.whole for frame in frames)


def test_of_a_message_that_is_too_long_only_the_tail_is_kept_and_the_next_one_is_whole():
    framer = Framer()
    chunk = bytes(1 for _ in range(1 << 16))
    for _ in range(MAX_MESSAGE_BYTES // len(chunk) + 2):
        assert not list(framer.feed(chunk))
    long, short = framer.feed(b"the end\0next\0")
    assert not long.whole
    assert len(long.data) <= TAIL_BYTES
    assert long.data.endswith(b"the end")
    assert (bytes(short.data), short.whole) == (b"next", True)
