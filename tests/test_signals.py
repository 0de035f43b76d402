import os
import signal
import threading

import pytest

from skypart.signals import answering


def test_signals_are_answered_for_a_while_and_then_as_before() -> None:
    heard: list[int] = []
    before = signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGUSR2)
    with answering(lambda number, frame: heard.append(number), signal.SIGUSR1, signal.SIGUSR2):
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
    assert sorted(heard) == sorted([signal.SIGUSR1, signal.SIGUSR2])
    assert (signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGUSR2)) == before


def test_an_error_puts_the_old_answer_back_too() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(KeyError):
        with answering(lambda number, frame: None, signal.SIGUSR1):
            raise KeyError
    assert signal.getsignal(signal.SIGUSR1) == before


def test_other_threads_go_on_without() -> None:
    reached: list[bool] = []

    def work() -> None:
        with answering(lambda number, frame: None, signal.SIGUSR1):
            reached.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reached == [True]
