//! What can be refused: a call by the system, and a frame by its own header.
//! It promises to say whose fault it is, with the numbers, and to name the capability that is missing and what to do.
//! It refuses to judge whether a refusal is fatal.

use core::fmt;

use rustix::io::Errno;

/// The answer to a call.
pub type Result<T> = core::result::Result<T, Error>;

/// What the system said; what is not its own counts as a fault in an argument.
pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::INVAL)
}

/// A right that the kernel asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// To create and configure interfaces.
    NetAdmin,
    /// To open packet sockets.
    NetRaw,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::NetRaw => "CAP_NET_RAW",
        })
    }
}

/// The system refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The process lacks a right.
    #[error(
        "{call} on `{name}` needs {capability}, which this process lacks in this network namespace: \
         run it as root, give the program the right (setcap {}+ep PROGRAM), \
         or run it in a namespace of its own (unshare -Urn PROGRAM)",
        lower(*capability)
    )]
    Lacks {
        /// The refused call.
        call: &'static str,
        /// The interface.
        name: String,
        /// What is missing.
        capability: Capability,
    },
    /// There is no such interface in this network namespace, or no longer.
    #[error(
        "there is no network interface `{name}` in this network namespace (ip link lists them)"
    )]
    NoInterface {
        /// The interface.
        name: String,
    },
    /// An interface of this name is there, and is somebody else's.
    #[error(
        "the network interface `{name}` is there already and in use: take another name, or a pattern such as tap%d"
    )]
    InUse {
        /// The interface.
        name: String,
    },
    /// The system has no TAP interfaces.
    #[error(
        "/dev/net/tun cannot be opened ({errno}): load the module (modprobe tun), or give this process the device"
    )]
    NoTun {
        /// Why not.
        errno: Errno,
    },
    /// The name is none that an interface can have.
    #[error(
        "`{name}` is no name for a network interface: 1 to 15 bytes without `/`, `:` and blanks, and neither `.` nor `..`"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// So many queues were asked for.
    #[error("{got} queues were asked for; an interface here has 1 to {most}")]
    Queues {
        /// Asked for.
        got: usize,
        /// The most.
        most: usize,
    },
    /// The interface is there, and has no further queue for us.
    #[error(
        "the network interface `{name}` is there already, and of another kind or made for one queue: take another name, or \
         make it for several (ip tuntap add {name} mode tap multi_queue user USER)"
    )]
    OneQueue {
        /// The interface.
        name: String,
    },
    /// The interface is there, and not for one queue alone.
    #[error(
        "the network interface `{name}` is there already, and of another kind or made for several queues: take another name, \
         open it with several (--queues 2 or more), or make it without multi_queue (ip tuntap add {name} mode tap user USER)"
    )]
    ManyQueues {
        /// The interface.
        name: String,
    },
    /// The interface is down, and the kernel shares frames of one that is up only.
    #[error(
        "the network interface `{name}` is down: several queues need it up (ip link set {name} up)"
    )]
    Down {
        /// The interface.
        name: String,
    },
    /// The address cannot be an interface's own.
    #[error("{mac} cannot be an interface's own address: it is a group's, or zero")]
    NoStation {
        /// The address.
        mac: crate::Mac,
    },
    /// The interface is not an Ethernet one.
    #[error("the network interface `{name}` is of type {kind} and not an Ethernet one (type 1)")]
    NotEthernet {
        /// The interface.
        name: String,
        /// As in `if_arp.h`.
        kind: u16,
    },
    /// Anything else.
    #[error("{call} on `{name}`: {errno}")]
    Refused {
        /// The refused call.
        call: &'static str,
        /// The interface.
        name: String,
        /// The reason.
        errno: Errno,
    },
}

fn lower(capability: Capability) -> &'static str {
    match capability {
        Capability::NetAdmin => "cap_net_admin",
        Capability::NetRaw => "cap_net_raw",
    }
}

impl Error {
    /// `call` on the interface `name` was refused with `errno`; if that was for want of rights, of this one.
    pub(crate) fn of(
        call: &'static str,
        name: &str,
        errno: Errno,
        capability: Capability,
    ) -> Error {
        let name = name.to_owned();
        match errno {
            Errno::PERM => Error::Lacks {
                call,
                name,
                capability,
            },
            Errno::NODEV | Errno::NXIO => Error::NoInterface { name },
            errno => Error::Refused { call, name, errno },
        }
    }
}

/// A frame and its header do not fit together, so the frame goes no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A kind of super-frame that nobody here cuts.
    #[error("a super-frame of kind {kind:#04x} is none that is known here")]
    Kind {
        /// As in the header.
        kind: u8,
    },
    /// A super-frame to be cut into frames without payload.
    #[error("a super-frame is to be cut into pieces of no bytes")]
    NoSize,
    /// A super-frame whose checksum claims to be complete.
    #[error("a super-frame has a complete checksum, which cutting would spoil")]
    WholeChecksum,
    /// The checksum lies outside.
    #[error("the checksum at {start}+{offset} lies outside a frame of {len} bytes")]
    Checksum {
        /// Where summing starts.
        start: u16,
        /// Where the sum belongs.
        offset: u16,
        /// Of the frame.
        len: usize,
    },
    /// The frame ends within a header.
    #[error("the frame's {len} bytes end within its {header} header")]
    Short {
        /// Which.
        header: &'static str,
        /// Of the frame.
        len: usize,
    },
    /// The frame does not carry what its header says.
    #[error("the header speaks of {said}, and the frame does not carry that")]
    Other {
        /// What the header speaks of.
        said: &'static str,
    },
    /// The frame is longer than any can be.
    #[error("a frame of {len} bytes is longer than {most}")]
    Long {
        /// Of the frame.
        len: usize,
        /// The most.
        most: usize,
    },
    /// A super-frame would become more frames than allowed.
    #[error("a super-frame of {payload} bytes in pieces of {size} makes more than {most} frames")]
    Pieces {
        /// Bytes to be cut.
        payload: usize,
        /// Of each piece.
        size: usize,
        /// The most.
        most: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_named_with_what_to_do() {
        for (capability, name) in [
            (Capability::NetAdmin, "CAP_NET_ADMIN"),
            (Capability::NetRaw, "CAP_NET_RAW"),
        ] {
            let error = Error::of("TUNSETIFF", "tap0", Errno::PERM, capability);
            let text = error.to_string();
            let lower = name.to_lowercase();
            for part in ["TUNSETIFF", "tap0", name, &lower, "unshare -Urn"] {
                assert!(text.contains(part), "{part} in: {text}");
            }
        }
    }

    #[test]
    fn a_missing_interface_is_no_missing_right() {
        let error = Error::of("SIOCGIFMTU", "x0", Errno::NODEV, Capability::NetAdmin);
        assert_eq!(error, Error::NoInterface { name: "x0".into() });
        let error = Error::of("SIOCSIFMTU", "x0", Errno::INVAL, Capability::NetAdmin);
        assert!(matches!(
            error,
            Error::Refused {
                errno: Errno::INVAL,
                ..
            }
        ));
    }
}
