//! Errors of this crate: one sentence each, with the numbers, the cause and where possible a remedy. An error of a request contains its
//! offset on the disk. The message of an error that wraps another includes the inner one, so callers print the outermost only.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use verbena_iscsi::login::LoginError;

use crate::address::AddressError;

/// Error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The disk's queue depth is reached.
    #[error("{depth} requests are under way, and the disk takes no more: wait for one to complete")]
    Full {
        /// The queue depth.
        depth: usize,
    },
    /// An error of the adapter.
    #[error(transparent)]
    Verbena(#[from] verbena::Error),
    /// An invalid address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A failed system call, on a file, a socket or another resource.
    #[error("{what}: {error}")]
    Io {
        /// The operation.
        what: String,
        /// The system's error.
        error: io::Error,
    },
    /// A range beyond the end of the disk.
    #[error("{len} bytes at {offset} are asked for, and the disk ends at {limit}")]
    Range {
        /// The first byte.
        offset: u64,
        /// Its length.
        len: u64,
        /// The size of the disk.
        limit: u64,
    },
    /// Two offsets that cannot both be aligned to blocks.
    #[error(
        "byte {from} of one disk and byte {to} of the other differ by less than whole blocks of {block} bytes: \
         choose an offset that differs by a multiple of {block}"
    )]
    Misaligned {
        /// Where reading begins.
        from: u64,
        /// Where writing begins.
        to: u64,
        /// The larger block size.
        block: u64,
    },
    /// The adapter rejected an operation on the connection.
    #[error("the connection to the target: {0}")]
    Link(String),
    /// The login failed.
    #[error("logging in at {address}: {why}")]
    Login {
        /// The portal.
        address: String,
        /// The cause.
        why: Box<LoginError>,
    },
    /// The target redirects the login, and redirections are disabled.
    #[error(
        "{from} redirects to {to}, and redirects are forbidden here: use that address if it is trusted"
    )]
    Redirected {
        /// The address that redirects.
        from: String,
        /// The new address.
        to: String,
    },
    /// The target redirects to another host, to which CHAP credentials are not sent.
    #[error(
        "{from} redirects to {to}, another host, to which CHAP credentials are sent only if allowed \
         (--redirect-credentials, Redirects::WithCredentials): {why}"
    )]
    CredentialsWithheld {
        /// The address that redirects.
        from: String,
        /// The new address.
        to: String,
        /// How the login there failed.
        why: String,
    },
    /// The peer did not answer as a target does.
    #[error("logging in at {address}: {why}: is an iSCSI target listening on that port?")]
    NotATarget {
        /// The portal.
        address: String,
        /// What happened instead.
        why: Box<Error>,
    },
    /// The target violated the protocol, or its answer cannot be used.
    #[error("the target: {0}")]
    Target(String),
    /// The target does not answer in time.
    #[error("the target sent no {what} within {limit:?}")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// The time limit.
        limit: Duration,
    },
    /// The connection to the target was lost.
    #[error("the connection to the target is lost: {0}")]
    Lost(String),
    /// An invalid setting.
    #[error("{0}")]
    Setting(String),
    /// A request failed.
    #[error("{what} at byte {at}: {failure}")]
    Failed {
        /// The kind of request.
        what: &'static str,
        /// Its offset on the disk.
        at: u64,
        /// The cause.
        failure: Failure,
    },
    /// The disk is write-protected.
    #[error("the disk is write-protected")]
    ReadOnly,
    /// The content of the disk differs from what was expected.
    #[error("byte {at} of the disk is {found:#04x} and should be {expected:#04x}")]
    Differs {
        /// Offset of the first difference.
        at: u64,
        /// The expected byte.
        expected: u8,
        /// The byte found.
        found: u8,
    },
    /// Unexpected end of input.
    #[error("the input ended after {got} of {wanted} bytes")]
    Short {
        /// Bytes read.
        got: u64,
        /// Bytes expected.
        wanted: u64,
    },
    /// Stopped by the caller.
    #[error("stopped after {done} of {total} bytes")]
    Stopped {
        /// Bytes moved.
        done: u64,
        /// Bytes to move.
        total: u64,
    },
    /// The path of a Unix socket is in use.
    #[error("{} {why}: remove it yourself or choose another path", path.display())]
    PathInUse {
        /// The path.
        path: PathBuf,
        /// What is there.
        why: &'static str,
    },
    /// An address that other hosts can reach.
    #[error(
        "{0} can be reached from other machines, and NBD has no authentication: \
         use a Unix socket or an address of this machine such as 127.0.0.1:10809"
    )]
    NotLocal(SocketAddr),
}

/// Why one request failed; the disk remains usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The blocks cannot be read or written.
    #[error("the target's medium failed: {0}")]
    Medium(String),
    /// The disk is write-protected.
    #[error("the target refuses writes: the disk is write-protected")]
    ReadOnly,
    /// A thin-provisioned disk has no space left.
    #[error("the target has no space left for this disk")]
    NoSpace,
    /// The target rejected the request.
    #[error("the target rejected the request: {0}")]
    Refused(String),
    /// The connection was lost before the request completed; it may have been executed.
    #[error("the disk was lost before the request was done: {0}")]
    Lost(String),
    /// The request was cancelled before it completed; it may have been executed.
    #[error("the request was cancelled before it was done")]
    Cancelled,
}

impl Error {
    /// Wraps a system's error with the operation that failed.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |error| Error::Io { what, error }
    }
}
