# SPDX-License-Identifier: Apache-2.0
"""Message transports of regard.distributed: an mpi4py communicator, or a torch.distributed process group.

    start(is_send, rank, tag, memory, piece)   starts a message; memory is a memoryview, valid until completion
    completed() ──▶ [piece, …]                 the pieces completed since the last call; raises an exception on failure
    failed                                     whether a rank has failed; set before close()
    close(finished)                            finished: whether no message is in flight

The extension calls these functions, one thread at a time, usually from its communication thread. Read next:
python/ranks.cpp.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import queue
import sys
import threading

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from typing import Any

_TORCH_TAG = 0x52670000  # added to all tags, to avoid collisions with the tags of the program
_UNUSED = 2              # a tag that no message uses
_FOREVER = datetime.timedelta(days=365)
_JOIN_SECONDS = 2.0


def transport_of(comm: Any) -> MpiTransport | TorchTransport:
    """Create the transport of a communicator or process group. This is a collective call."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and isinstance(comm, mpi.Comm):
        return MpiTransport(comm, mpi)
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available():
        if comm is torch.GroupMember.NON_GROUP_MEMBER:
            raise ValueError("regard.distributed: this process is not in the process group; expected a group that contains it")
        if isinstance(comm, torch.ProcessGroup):
            return TorchTransport(comm)
    raise TypeError(f"regard.distributed: comm is of type {type(comm).__name__}; expected an mpi4py communicator or a "
                    "process group of torch.distributed")


class _MessageError(Exception):
    """A message to or from a rank has failed."""

    def __init__(self, text: str, rank: int) -> None:
        super().__init__(text)
        self.rank = rank


class MpiTransport:
    """Messages over a duplicate of an mpi4py communicator."""

    def __init__(self, comm: Any, mpi: Any) -> None:
        if comm == mpi.COMM_NULL or comm.Is_inter():
            raise ValueError("regard.distributed: comm is not an intracommunicator; expected one such as MPI.COMM_WORLD")
        self._mpi = mpi
        self._given = comm
        self._comm = comm.Dup()
        self._comm.Set_errhandler(mpi.ERRORS_RETURN)
        self._requests: list[Any] = []
        self._pieces: list[int] = []
        self.rank = comm.Get_rank()
        self.num_ranks = comm.Get_size()
        self.may_use_thread = mpi.Query_thread() == mpi.THREAD_MULTIPLE
        self.failed = False

    def is_of(self, comm: Any) -> bool:
        return isinstance(comm, self._mpi.Comm) and bool(comm == self._given)

    def start(self, is_send: bool, rank: int, tag: int, memory: memoryview, piece: int) -> None:
        start = self._comm.Isend if is_send else self._comm.Irecv
        try:
            self._requests.append(start([memory, self._mpi.BYTE], rank, tag))
        except self._mpi.Exception as error:
            raise _MessageError(f"MPI: {error}", rank) from None
        self._pieces.append(piece)

    def completed(self) -> list[int]:
        if not self._requests:
            return []
        done = self._mpi.Request.Testsome(self._requests)
        if not done:
            return []
        pieces = [self._pieces[place] for place in done]
        left = [place for place, request in enumerate(self._requests) if request != self._mpi.REQUEST_NULL]
        self._requests = [self._requests[place] for place in left]
        self._pieces = [self._pieces[place] for place in left]
        return pieces

    def close(self, finished: bool) -> None:
        if finished and not self.failed and not self._mpi.Is_finalized():
            self._comm.Free()

    def exit(self, at_once: bool) -> None:
        """With at_once, abort all ranks: MPI.Finalize(), which mpi4py calls at exit, could otherwise block."""
        if at_once and self.num_ranks > 1 and not self._mpi.Is_finalized():
            sys.stderr.flush()
            self._mpi.COMM_WORLD.Abort(1)


class TorchTransport:
    """Messages over a process group with the gloo backend.

    Gloo completes a message only in ``wait()``, which has no polling variant. Therefore, one thread for each rank, tag
    and direction waits for the messages in order.
    """

    def __init__(self, group: Any) -> None:
        torch: Any = sys.modules["torch"]
        backend = group._get_backend(torch.device("cpu")).name()
        if backend != "gloo":
            raise ValueError(f"regard.distributed: the process group has the backend {backend} for CPU tensors; expected gloo")
        self._torch = torch
        self._group = group
        self._channels: dict[tuple[bool, int, int], Any] = {}
        self._threads: list[threading.Thread] = []
        self._done: collections.deque[int] = collections.deque()
        self._failed: collections.deque[_MessageError] = collections.deque()
        self.rank = group.rank()
        self.num_ranks = group.size()
        self.may_use_thread = True
        self.failed = False

    def is_of(self, comm: Any) -> bool:
        return comm is self._group

    def start(self, is_send: bool, rank: int, tag: int, memory: memoryview, piece: int) -> None:
        torch = self._torch
        tensor = torch.frombuffer(memory, dtype=torch.uint8) if len(memory) else torch.empty(0, dtype=torch.uint8)
        try:
            work = (self._group.send if is_send else self._group.recv)([tensor], rank, _TORCH_TAG + tag)
        except RuntimeError as error:
            raise _MessageError(str(error), rank) from None
        channel = self._channels.get((is_send, rank, tag))
        if channel is None:
            channel = self._channels[is_send, rank, tag] = queue.SimpleQueue()
            thread = threading.Thread(target=self._wait, args=(channel, rank), name="regard.distributed", daemon=True)
            self._threads.append(thread)
            thread.start()
        channel.put((work, tensor, piece))

    def _wait(self, channel: Any, rank: int) -> None:
        while (message := channel.get()) is not None:
            work, _, piece = message
            try:
                work.wait(_FOREVER)
            except RuntimeError as error:
                self._failed.append(_MessageError(str(error), rank))
                return
            self._done.append(piece)

    def completed(self) -> list[int]:
        pieces = []
        while self._done:
            pieces.append(self._done.popleft())
        if not pieces and self._failed:
            raise self._failed[0]
        return pieces

    def close(self, finished: bool) -> None:
        if not finished:
            self._disconnect()
        for channel in self._channels.values():
            channel.put(None)
        for thread in self._threads:
            thread.join(None if finished else _JOIN_SECONDS)

    def _disconnect(self) -> None:
        """Make all waiting threads return now, because they must not return while the interpreter shuts down.

        Gloo has no function for this purpose, but it closes all connections of a group if a wait times out.
        """
        for other in range(self.num_ranks):
            # If a rank has ended, its connection is already closed, and wait() raises RuntimeError.
            with contextlib.suppress(RuntimeError):
                if other != self.rank:
                    memory = self._torch.empty(1, dtype=self._torch.uint8)
                    self._group.recv([memory], other, _TORCH_TAG + _UNUSED).wait(datetime.timedelta(milliseconds=1))

    def exit(self, at_once: bool) -> None:
        """Nothing needs to be done."""
