//! What each kind of report means, and what to do. The same texts are in docs/check.md, which a test compares.

/// The kinds: name and text, whose first line is a summary.
pub const KINDS: &[(&str, &str)] = &[
    (
        "send-buffer-changed",
        "\
The buffer of a Send, Write or Atomic Write was changed before its completion was polled.

The adapter reads the buffer until the request completes, and again if it has to repeat it: the peer
may get the old bytes, the new ones, or some of both. The buffer is the program's again when the
completion of the request is polled; for an unsignaled request, when the completion of a later
signaled request of the queue pair is.

Noticed by comparing the buffer with what it contained when the request was posted. A change that is
undone before is not seen, and neither is the thread that changed the buffer. A peer that writes
into the buffer by RDMA in the meantime changes it, too. Inline data is copied by the post and may
be changed at once.

Do: poll the completion first, use another buffer for the next request, or post short data inline
(IBV_SEND_INLINE).

Example: send_buffer_changed.c
",
    ),
    (
        "receive-buffer-changed",
        "\
The buffer of a receive was changed behind the bytes of its message before its completion was polled.

From the post to the completion the buffer belongs to the adapter, also the part that a short
message does not fill: the next message could have filled it.

Noticed by comparing what lies behind the message, and of a receive that was flushed the whole
buffer, with what it contained when the receive was posted. Bytes that the message replaced are not
compared, reading too early is not noticed, and neither are receives whose buffers overlap others.

Do: do not touch the buffer before the completion; look for a receive that is posted while its
buffer is still in use, and for writes beyond the end of a neighbour.

Example: receive_buffer_changed.c
",
    ),
    (
        "overlapping-receives",
        "\
A receive was posted with memory that an outstanding receive has already.

Each message is written to the buffer of one receive, and the later one replaces the earlier one,
perhaps before the program has read it. Often a buffer was posted twice.

Do: give every outstanding receive memory of its own. Programs that only measure and never look at
the data do it on purpose; suppress it there.

Example: overlapping_receives.c
",
    ),
    (
        "overlapping-reads",
        "\
A Read or atomic was posted whose local buffer overlaps that of another outstanding Read, atomic or receive.

Requests that write to local memory may complete at the same time, and what the memory contains then
is not defined.

Do: give every outstanding request memory of its own, or wait for the first one. Several Writes to
the same memory of a peer are not reported: only the peer could know what is there.

Example: overlapping_reads.c
",
    ),
    (
        "send-queue-overrun",
        "\
More send requests are outstanding than the send queue of an adapter has places (max_send_wr).

A request gives up its place only when its completion is polled, and an unsignaled one when a later
signaled one is. This adapter ends unsignaled requests by itself and takes further ones; others
refuse them with ENOMEM as soon as the queue is full, for ever if no signaled request is in it.

Noticed when a post succeeds here although more than max_send_wr requests have not been seen to
complete. A post that is refused with ENOMEM is not reported: it can be repeated.

Do: signal at least every max_send_wr-th request, poll its completion, and count what is
outstanding.

Example: send_queue_overrun.c
",
    ),
    (
        "cq-overrun",
        "\
More requests are outstanding than their completion queue has entries, or it did overflow.

A queue that overflows raises IBV_EVENT_CQ_ERR, and its queue pairs fail. Adapters round the number
of entries up, so that it may work by chance.

Noticed at the post that makes the sum of signaled sends and receives larger than the queue, even if
the program polls in time; receives of a shared receive queue are not counted. An overflow that
happens is always reported.

Do: create the queue with an entry for each request that may be outstanding: signaled sends and
receives of all queue pairs that complete in it.

Example: cq_overrun.c
",
    ),
    (
        "wrong-state",
        "\
A request was posted in a state in which the queue pair takes none.

Receives can be posted from INIT on, sends from RTS on. Adapters refuse others, or drop them without
a word.

A queue pair in the error state takes requests and flushes them, which is not reported. With rdma_cm
only posts that are refused are reported.

Do: move the queue pair on before (ibv_modify_qp), or wait for RDMA_CM_EVENT_ESTABLISHED.

Example: wrong_state.c
",
    ),
    (
        "post-refused",
        "\
A post was refused: nothing of this request and of those behind it is executed.

The usual reasons are more pieces than max_send_sge or max_recv_sge, more inline data than
max_inline_data, and an operation that the type of the queue pair does not have.

A full queue (ENOMEM) is not reported, since a program can wait and repeat the post.

Do: look at the result of every post and at bad_wr; compare the request with the limits that the
queue pair was created with.

Example: post_refused.c
",
    ),
    (
        "stale-key",
        "\
An lkey or rkey was used that had been deregistered or invalidated.

The request fails, or worse, reaches other memory that has got the same key meanwhile.

Noticed for lkeys when they are posted; for rkeys when the peer refuses the request and this process
has deregistered or invalidated the key, and at the peer when it ends or its queue pair is
destroyed, if the refused access was the first cause of the queue pair's failure. The last 4096 keys
are known.

Do: deregister memory only when no request needs it any more, and tell the peer before. The report
has the stacks of the end and of the registration.

Example: stale_key.c, stale_rkey.c
",
    ),
    (
        "unknown-key",
        "\
A request was posted with an lkey that no region of this process has or had.

Often the field was not set, an rkey of the peer was used as lkey, or a struct was copied from
another process.

Do: set lkey of every struct ibv_sge to that of the region that contains the address.

Example: unknown_key.c
",
    ),
    (
        "memory-unmapped",
        "\
Memory was unmapped while it was registered, or while a request used it.

An adapter keeps the pages of registered memory: it would go on to read and write pages that the
program does not have any more, while new memory at the address is not registered. Here the requests
fail.

Noticed within munmap, mremap and mmap with MAP_FIXED, if the program calls the C library's;
otherwise when the memory is deregistered, when a request with it is posted or completes, and at the
end of the process. On-demand regions may be unmapped. shmdt and brk are noticed late only.

Do: deregister first, then unmap.

Example: memory_unmapped.c
",
    ),
    (
        "memory-freed",
        "\
Memory was given back by free or realloc while it was registered.

The allocator gives it to another part of the program, into which requests and peers then write; or
it unmaps it.

Noticed within free and realloc of the C library or of a library that replaces them, not in programs
that are linked statically with another allocator, nor by delete of a C++ library that does not call
free. Caches of registrations (UCX, libfabric, MPI) leave freed memory registered on purpose:
suppress the kind for these programs.

Do: deregister first, then free.

Example: memory_freed.c
",
    ),
    (
        "leaked-object",
        "\
An object was not destroyed when the process ended.

The system takes everything back when a process ends; in one that goes on, each such object holds
memory and numbers of the adapter. Objects that one call created together are one report.

Noticed when the process ends by exit or by returning from main, after its own functions for that
have run; not after a signal or _exit.

Do: destroy in the reverse order of creation. For objects that are to live as long as the process,
add a suppression.

Example: leaked_object.c
",
    ),
    (
        "event-unacknowledged",
        "\
An event that the program has read was not acknowledged.

Destroying the object that an event is about (completion queue, queue pair, shared receive queue,
identifier) waits until all of its events are acknowledged: for ever if that does not happen.

Noticed when the object is destroyed and the events are not acknowledged within half a second; the
program then goes on, which it would not without the check. Also at the end of the process.

Do: call ibv_ack_cq_events, ibv_ack_async_event or rdma_ack_cm_event once for each event; several
events of a completion queue can be acknowledged by one call.

Example: event_unacknowledged.c
",
    ),
    (
        "completion-unpolled",
        "\
A completion queue ended with completions that had not been polled.

The result of these requests was never looked at; while they lie there, the queue overflows sooner.

Only completions of success count: those of requests that are flushed are usually left on purpose.

Do: poll until every signaled request has completed before the queue is destroyed; do not signal
requests whose completion does not matter.

Example: completion_unpolled.c
",
    ),
    (
        "unused-access",
        "\
Memory was registered with a right that no operation needed (hint).

IBV_ACCESS_LOCAL_WRITE is needed for receives, Reads and atomics into the memory, and if peers may
write. Rights for peers let every peer that knows or guesses the key use them.

Noticed for IBV_ACCESS_LOCAL_WRITE without rights for peers to write, when no request wrote to the
region; and for rights for peers, when no queue pair was connected at all. Whether a connected peer
used its rights is not known.

Do: leave the right out.

Example: unused_access.c
",
    ),
    (
        "busy-poll",
        "\
A thread used a processor for polls that found nothing (hint).

100 ms of processor time between two completions. Polling is right where microseconds count;
elsewhere the processor is taken from others, here also from the peer on the same host.

Do: arm the queue (ibv_req_notify_cq), poll once more, and sleep in ibv_get_cq_event or poll(2) on
the channel's descriptor; or poll for a short time and then sleep.

Example: busy_poll.c
",
    ),
];

/// The text of a kind.
pub fn explanation(name: &str) -> Option<&'static str> {
    let found = KINDS.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text)
}
