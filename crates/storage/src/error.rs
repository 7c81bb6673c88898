//! Why something did not work: one sentence with the numbers that says who is to blame and what to do.
//! It promises that a request's failure names the place on the disk.
//! It refuses to be shown twice: an error that wraps another says all of it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use verbena_iscsi::login::LoginError;

use crate::address::AddressError;
use crate::blocks::Failure;

/// Why something did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// As many requests as the disk takes are under way.
    #[error("{depth} requests are under way, and the disk takes no more: wait for one to complete")]
    Full {
        /// How many it takes.
        depth: usize,
    },
    /// The adapter.
    #[error(transparent)]
    Verbena(#[from] verbena::Error),
    /// An address that is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A file, a socket or another thing of the system.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        error: io::Error,
    },
    /// Bytes that the disk does not have.
    #[error("{len} bytes at {offset} are asked for, and the disk ends at {limit}")]
    Range {
        /// The first byte.
        offset: u64,
        /// How many.
        len: u64,
        /// The size of the disk.
        limit: u64,
    },
    /// Two places that can never both lie between blocks.
    #[error(
        "byte {from} of one disk and byte {to} of the other differ by less than whole blocks of {block} bytes: \
         choose an offset that differs by a multiple of {block}"
    )]
    Skew {
        /// Where reading begins.
        from: u64,
        /// Where writing begins.
        to: u64,
        /// The larger block.
        block: u64,
    },
    /// The adapter refused what we asked of the connection.
    #[error("the connection to the target: {0}")]
    Link(String),
    /// A login came to nothing.
    #[error("logging in at {address}: {why}")]
    Login {
        /// Where.
        address: String,
        /// Why.
        why: Box<LoginError>,
    },
    /// A target has moved, and may not be followed.
    #[error(
        "{from} redirects to {to}, and redirects are forbidden here: use that address if it is trusted"
    )]
    Redirected {
        /// Who said so.
        from: String,
        /// Where it is now.
        to: String,
    },
    /// A target has moved to another host, where our CHAP credentials are not shown.
    #[error(
        "{from} redirects to {to}, another host, which gets no CHAP credentials unless that is asked for \
         (--redirect-credentials, Redirects::WithCredentials): {why}"
    )]
    Withheld {
        /// Who said so.
        from: String,
        /// Where it is now.
        to: String,
        /// What came of it.
        why: String,
    },
    /// Who listens there did not behave like a target.
    #[error("logging in at {address}: {why}: is an iSCSI target listening on that port?")]
    NoTarget {
        /// Where.
        address: String,
        /// What it did instead.
        why: Box<Error>,
    },
    /// The target did something wrong, or nothing of use.
    #[error("the target: {0}")]
    Target(String),
    /// The target does not answer.
    #[error("the target gave us no {what} within {limit:?}")]
    Silent {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        limit: Duration,
    },
    /// The connection to the target is gone.
    #[error("the connection to the target is lost: {0}")]
    Lost(String),
    /// A setting that makes no sense.
    #[error("{0}")]
    Setting(String),
    /// A request failed.
    #[error("{what} at byte {at}: {failure}")]
    Failed {
        /// What was asked for.
        what: &'static str,
        /// Where on the disk.
        at: u64,
        /// Why.
        failure: Failure,
    },
    /// The disk refuses writes.
    #[error("the disk is write-protected")]
    ReadOnly,
    /// A disk's content is not what it should be.
    #[error("byte {at} of the disk is {found:#04x} and should be {expected:#04x}")]
    Differs {
        /// Where the first difference is.
        at: u64,
        /// What it should be.
        expected: u8,
        /// What it is.
        found: u8,
    },
    /// Input that ended too early.
    #[error("the input ended after {got} of {wanted} bytes")]
    Short {
        /// Bytes that came.
        got: u64,
        /// Bytes that should have.
        wanted: u64,
    },
    /// The caller wanted no more.
    #[error("stopped after {done} of {total} bytes")]
    Stopped {
        /// Bytes that were moved.
        done: u64,
        /// Bytes there were to move.
        total: u64,
    },
    /// The place of a socket is taken.
    #[error("{} {why}: remove it yourself or choose another path", path.display())]
    Occupied {
        /// Where.
        path: PathBuf,
        /// By what.
        why: &'static str,
    },
    /// An address that others can reach.
    #[error(
        "{0} can be reached from other machines, and NBD asks nobody for a password: \
         use a Unix socket or an address of this machine such as 127.0.0.1:10809"
    )]
    NotLocal(SocketAddr),
}

impl Error {
    /// What the system says about something that was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |error| Error::Io { what, error }
    }
}
