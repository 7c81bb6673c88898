//! Tests of messages between two ends: whole ones of every size, and every protocol error of a peer.

use core::mem::MaybeUninit;
use std::io::{IoSlice, Read};
use std::time::Instant;

use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::io::FdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use verbena_testing::wait_until;

use super::*;

const SHORT: Duration = Duration::from_millis(30);

fn pair() -> (FdChannel, FdChannel) {
    let (mut a, mut b) = FdChannel::pair().unwrap();
    let long = super::super::testing::TEST_TIMEOUT;
    a.set_timeouts(long, long);
    b.set_timeouts(long, long);
    (a, b)
}

fn files(count: usize) -> Vec<OwnedFd> {
    (0..count)
        .map(|_| memfd_create("test", MemfdFlags::CLOEXEC).unwrap())
        .collect()
}

fn inode(fd: impl AsFd) -> u64 {
    fstat(fd).unwrap().st_ino
}

/// What a hostile peer sends: these bytes, with these descriptors attached to the first.
fn raw(fd_channel: &FdChannel, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let pieces = [IoSlice::new(bytes)];
    let sent = sendmsg(fd_channel, &pieces, &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(bytes.len()));
}

fn head(len: usize, descriptors: usize, more: bool) -> [u8; HEADER] {
    let header = Header {
        len,
        descriptors,
        more,
    };
    header.emit()
}

/// Receives an error, after which the connection is broken.
fn refused(mut fd_channel: FdChannel) -> FdChannelError {
    let why = fd_channel.receive().unwrap_err();
    assert_eq!(fd_channel.receive().unwrap_err(), FdChannelError::Broken);
    assert_eq!(fd_channel.send(b"", &[]), Err(FdChannelError::Broken));
    why
}

#[test]
fn messages_arrive_with_their_descriptors() {
    let files = files(7);
    let (mut a, mut b) = pair();
    for count in [0, 1, 2, 249, 250, 251, 500, 501] {
        for len in [0, 1, 5000, 3 << 20] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
            // A pattern in which swapped descriptors are noticed.
            let sent: Vec<_> = (0..count).map(|i| files[i * i % 7].as_fd()).collect();
            let (got, came) = std::thread::scope(|scope| {
                scope.spawn(|| a.send(&bytes, &sent).unwrap());
                b.receive().unwrap()
            });
            assert!(got == bytes, "{len} bytes with {count} descriptors");
            assert_eq!(came.len(), count);
            for (sent, came) in sent.iter().zip(&came) {
                assert_eq!(inode(sent), inode(came));
                let flags = rustix::io::fcntl_getfd(came).unwrap();
                assert!(flags.contains(FdFlags::CLOEXEC));
            }
        }
    }
}

#[test]
fn queued_messages_keep_their_boundaries() {
    let files = files(3);
    let (mut a, mut b) = pair();
    for (n, file) in files.iter().enumerate() {
        a.send(&vec![n as u8; n], &vec![file.as_fd(); n]).unwrap();
    }
    b.send(b"and back", &[]).unwrap();
    for (n, file) in files.iter().enumerate() {
        let (bytes, came) = b.receive().unwrap();
        assert_eq!((bytes, came.len()), (vec![n as u8; n], n));
        assert!(came.iter().all(|fd| inode(fd) == inode(file)));
    }
    assert_eq!(a.receive().unwrap().0, b"and back");
    drop(a);
    assert_eq!(b.receive().unwrap_err(), FdChannelError::Disconnected);
}

#[test]
fn too_large_message_is_not_sent() {
    let file = &files(1)[0];
    let (mut a, mut b) = pair();
    let (len, limit) = (MAX_LEN + 1, MAX_LEN);
    let long = FdChannelError::TooLong { len, limit };
    assert_eq!(a.send(&vec![0; len], &[]), Err(long));
    let (count, limit) = (MAX_DESCRIPTORS + 1, MAX_DESCRIPTORS);
    let many = FdChannelError::TooMany { count, limit };
    assert_eq!(a.send(b"", &vec![file.as_fd(); count]), Err(many));
    a.send(b"short", &[]).unwrap();
    assert_eq!(
        b.receive().unwrap().0,
        b"short",
        "and nothing of the others"
    );
}

#[test]
fn invalid_frame_headers_are_refused() {
    let (a, b) = pair();
    raw(&a, &head(MAX_LEN + 1, 0, false), &[]);
    let (len, limit) = (MAX_LEN + 1, MAX_LEN);
    assert_eq!(refused(b), FdChannelError::TooLong { len, limit });
    let longest = u64::from(u32::MAX).to_le_bytes();
    let too_many = head(0, PER_FRAME + 1, false);
    // Otherwise a message could continue for ever without a descriptor.
    let half_full = head(0, PER_FRAME - 1, true);
    let unknown = (2_u64 << 48).to_le_bytes();
    for bytes in [longest, too_many, half_full, unknown] {
        let (a, b) = pair();
        raw(&a, &bytes, &[]);
        let word = u64::from_le_bytes(bytes);
        let why = refused(b);
        let long = matches!(why, FdChannelError::TooLong { len, .. } if len == u32::MAX as usize);
        let known = why == FdChannelError::Malformed { word };
        assert!(known || long && bytes == longest, "{why}");
    }
}

/// The second frame of a message has no bytes, and the message no more descriptors than the limit.
#[test]
fn unfinished_messages_are_refused() {
    let file = &files(1)[0];
    let full = vec![file.as_fd(); PER_FRAME];
    let (a, b) = pair();
    raw(&a, &head(0, PER_FRAME, true), &full);
    let again = head(1, 0, false);
    raw(&a, &again, &[]);
    let word = u64::from_le_bytes(again);
    assert_eq!(refused(b), FdChannelError::Malformed { word });
    let (a, b) = pair();
    raw(&a, &head(0, PER_FRAME, true), &full);
    drop(a);
    let (done, of) = (0, HEADER);
    assert_eq!(refused(b), FdChannelError::Truncated { done, of });
    assert_eq!(
        check_count(MAX_DESCRIPTORS + 1),
        Err(FdChannelError::TooMany {
            count: MAX_DESCRIPTORS + 1,
            limit: MAX_DESCRIPTORS
        })
    );
}

/// And none of them stays open: the pipe has no writer left.
#[test]
fn unannounced_descriptors_are_closed() {
    let of_four = |announced| [&head(4, announced, false)[..], b"four"].concat();
    // Announced, sent with the header, sent with the bytes.
    for (announced, early, late) in [
        (0, 1, 0),
        (1, 2, 0),
        (0, 0, 1),
        (1, 1, 1),
        (2, 1, 0),
        (1, 0, 0),
    ] {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (a, b) = pair();
        let frame = of_four(announced);
        raw(&a, &frame[..HEADER], &vec![writer.as_fd(); early]);
        raw(&a, &frame[HEADER..], &vec![writer.as_fd(); late]);
        drop(writer);
        let got = early + late;
        assert_eq!(
            refused(b),
            FdChannelError::DescriptorCount { announced, got }
        );
        drop(a);
        let mut rest = Vec::new();
        assert_eq!(reader.read_to_end(&mut rest).unwrap(), 0);
    }
}

/// At once, not at the end of a frame that may never end: each of its bytes could bring as many again.
#[test]
fn unannounced_descriptors_are_refused_at_once() {
    let (_reader, writer) = std::io::pipe().unwrap();
    let (a, b) = pair();
    raw(&a, &head(MAX_LEN, 0, false), &[]);
    raw(&a, b"f", &[writer.as_fd(); 2]);
    let (announced, got) = (0, 2);
    assert_eq!(
        refused(b),
        FdChannelError::DescriptorCount { announced, got }
    );
}

/// `MSG_CTRUNC`: the system takes 253 at once, a frame has 250.
#[test]
fn truncated_descriptors_are_an_error() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let (a, b) = pair();
    raw(&a, &head(0, PER_FRAME, false), &[writer.as_fd(); 253]);
    drop(writer);
    assert_eq!(refused(b), FdChannelError::DescriptorsLost);
    let mut rest = Vec::new();
    assert_eq!(reader.read_to_end(&mut rest).unwrap(), 0, "all are closed");
}

#[test]
fn peer_closing_within_a_message_is_reported() {
    let whole = [&head(4, 0, false)[..], b"four"].concat();
    for done in 1..whole.len() {
        let (a, b) = pair();
        raw(&a, &whole[..done], &[]);
        drop(a);
        let of = if done < HEADER { HEADER } else { whole.len() };
        assert_eq!(refused(b), FdChannelError::Truncated { done, of });
    }
}

#[test]
fn peer_silent_within_a_message_times_out() {
    let whole = [&head(4, 0, false)[..], b"four"].concat();
    for done in 1..whole.len() {
        let (a, mut b) = pair();
        b.set_timeouts(SHORT, SHORT);
        raw(&a, &whole[..done], &[]);
        let (of, patience) = (if done < HEADER { HEADER } else { whole.len() }, SHORT);
        let began = Instant::now();
        assert_eq!(refused(b), FdChannelError::TimedOut { done, of, patience });
        assert!(began.elapsed() >= SHORT);
    }
}

/// Nothing is lost if no byte had been received.
#[test]
fn message_after_a_timeout_is_received() {
    let (mut a, mut b) = pair();
    b.set_timeouts(SHORT, SHORT);
    let (done, of, patience) = (0, HEADER, SHORT);
    let late = FdChannelError::TimedOut { done, of, patience };
    assert_eq!(b.receive().unwrap_err(), late);
    a.send(b"late", &[]).unwrap();
    assert_eq!(b.receive().unwrap().0, b"late");
}

/// Single bytes are no progress: the time limit is for the message.
#[test]
fn message_sent_byte_by_byte_times_out() {
    let (a, mut b) = pair();
    b.set_timeouts(SHORT, SHORT);
    let far = b.as_fd().try_clone_to_owned().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            raw(&a, &head(MAX_LEN, 0, false), &[]);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                raw(&a, b"d", &[]);
                wait_until("the byte is read", || {
                    let unread = rustix::io::ioctl_fionread(&far).unwrap();
                    unread == 0 || done.load(std::sync::atomic::Ordering::Relaxed)
                });
            }
        });
        let why = b.receive().unwrap_err();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(
            matches!(why, FdChannelError::TimedOut { of, .. } if of == HEADER + MAX_LEN),
            "{why}"
        );
    });
}

#[test]
fn send_to_peer_that_never_reads_times_out() {
    let (mut a, b) = pair();
    a.set_timeouts(SHORT, SHORT);
    let why = a.send(&vec![0; MAX_LEN], &[]).unwrap_err();
    assert!(
        matches!(why, FdChannelError::TimedOut { done, .. } if done > 0),
        "{why}"
    );
    assert_eq!(a.send(b"", &[]), Err(FdChannelError::Broken));
    drop(b);
    let (mut a, b) = pair();
    drop(b);
    let (done, of) = (0, HEADER + 3);
    assert_eq!(
        a.send(b"ear", &[]),
        Err(FdChannelError::Truncated { done, of })
    );
    // It closed with our message unread, which resets the connection.
    let (mut a, b) = pair();
    a.send(b"unread", &[]).unwrap();
    drop(b);
    assert_eq!(a.receive().unwrap_err(), FdChannelError::Disconnected);
}
