import os
import signal
import threading

import pytest

from skypart.signals import handle_signals


def test_the_handler_is_installed_and_then_restored() -> None:
    received: list[int] = []
    before = signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGUSR2)
    with handle_signals(lambda number, frame: received.append(number), signal.SIGUSR1, signal.SIGUSR2):
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
    assert sorted(received) == sorted([signal.SIGUSR1, signal.SIGUSR2])
    assert (signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGUSR2)) == before


def test_an_error_restores_the_previous_handler() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(KeyError):
        with handle_signals(lambda number, frame: None, signal.SIGUSR1):
            raise KeyError
    assert signal.getsignal(signal.SIGUSR1) == before


def test_other_threads_run_without_a_handler() -> None:
    reached: list[bool] = []

    def work() -> None:
        with handle_signals(lambda number, frame: None, signal.SIGUSR1):
            reached.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reached == [True]
