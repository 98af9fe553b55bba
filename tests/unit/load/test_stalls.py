"""Silences are measured between arrivals, for the streams in progress when the window opened."""

from load.stalls import Silence, Streams

A, B, C = ("a", 0), ("b", 0), ("c", 1)


def test_the_longest_silence_counts() -> None:
    """Between two arrivals, also when the first of them came before the window."""
    streams = Streams()
    streams.arrived(A, 10.0, attempt=1)
    streams.open_window()
    for now in (13.0, 13.5, 15.5, 16.0):
        streams.arrived(A, now, attempt=1)
    assert streams.close_window(16.1) == {A: Silence(3.0, resumed=False)}


def test_a_silence_that_goes_on() -> None:
    """A stream that is still silent when the window closes was silent until then."""
    streams = Streams()
    streams.arrived(A, 10.0, attempt=1)
    streams.open_window()
    assert streams.close_window(17.0) == {A: Silence(7.0, resumed=False)}


def test_only_streams_in_progress() -> None:
    """One that had ended does not count, nor one that begins within; one that ends within counts until its end."""
    streams = Streams()
    streams.arrived(A, 9.0, attempt=1)
    streams.ended(A)
    streams.arrived(B, 10.0, attempt=1)
    streams.open_window()
    streams.arrived(C, 11.0, attempt=1)
    streams.arrived(B, 12.0, attempt=1)
    streams.ended(B)
    assert streams.close_window(20.0) == {B: Silence(2.0, resumed=False)}


def test_resumed_streams_are_known() -> None:
    """A stream that goes on under another attempt was resumed; the next window begins anew."""
    streams = Streams()
    streams.arrived(A, 10.0, attempt=1)
    streams.open_window()
    streams.arrived(A, 12.0, attempt=7)
    assert streams.close_window(12.5) == {A: Silence(2.0, resumed=True)}
    streams.open_window()
    streams.arrived(A, 13.0, attempt=7)
    assert streams.close_window(13.0) == {A: Silence(1.0, resumed=False)}
