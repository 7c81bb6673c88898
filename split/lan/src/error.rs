//! Errors of this crate: [`Error`] for a failed system call, [`FrameError`] for a frame that does not match its header. Messages contain
//! the numbers, name a missing capability and say how to grant it.

use core::fmt;

use rustix::io::Errno;

/// The result of a call.
pub type Result<T> = core::result::Result<T, Error>;

/// The error number; `EINVAL` for an error that did not come from the system.
pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::INVAL)
}

/// A capability that the kernel requires.
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

/// A system call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The process lacks a capability.
    #[error(
        "{call} on `{name}` needs {capability}, which this process lacks in this network namespace: \
         run it as root, give the program the right (setcap {}+ep PROGRAM), \
         or run it in a namespace of its own (unshare -Urn PROGRAM)",
        lower(*capability)
    )]
    MissingCapability {
        /// The failed call.
        call: &'static str,
        /// The interface.
        name: String,
        /// The missing capability.
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
    /// An interface of this name exists and another program uses it.
    #[error(
        "the network interface `{name}` exists already and is in use: use another name, or a pattern such as tap%d"
    )]
    InUse {
        /// The interface.
        name: String,
    },
    /// `/dev/net/tun` cannot be opened.
    #[error(
        "/dev/net/tun cannot be opened ({errno}): load the module (modprobe tun), or make the device accessible to this process"
    )]
    NoTun {
        /// The cause.
        errno: Errno,
    },
    /// The name is not valid for an interface.
    #[error(
        "`{name}` is not a valid name for a network interface: 1 to 15 bytes without `/`, `:` and blanks, and neither `.` nor `..`"
    )]
    InvalidName {
        /// The name.
        name: String,
    },
    /// The number of queues is out of range.
    #[error("{got} queues were requested; an interface can have 1 to {most}")]
    QueueCount {
        /// The requested number.
        got: usize,
        /// The limit.
        most: usize,
    },
    /// The interface exists without `IFF_MULTI_QUEUE`, or is not a TAP interface.
    #[error(
        "the network interface `{name}` exists already, and is not a TAP interface or was created for one queue: use another name, or \
         create it for several (ip tuntap add {name} mode tap multi_queue user USER)"
    )]
    OneQueue {
        /// The interface.
        name: String,
    },
    /// The interface exists with `IFF_MULTI_QUEUE` and was opened for one queue, or is not a TAP interface.
    #[error(
        "the network interface `{name}` exists already, and is not a TAP interface or was created for several queues: use another name, \
         open it with several (--queues 2 or more), or create it without multi_queue (ip tuntap add {name} mode tap user USER)"
    )]
    ManyQueues {
        /// The interface.
        name: String,
    },
    /// The interface is down: `PACKET_FANOUT` needs it up (before Linux 6.13).
    #[error(
        "the network interface `{name}` is down: several queues need it up (ip link set {name} up)"
    )]
    Down {
        /// The interface.
        name: String,
    },
    /// The address is not a unicast address that a station can have.
    #[error("{mac} cannot be an interface's own address: it is a group address, or zero")]
    NotUnicast {
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
    /// Any other error.
    #[error("{call} on `{name}`: {errno}")]
    Refused {
        /// The failed call.
        call: &'static str,
        /// The interface.
        name: String,
        /// The error number.
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
    /// The error for `call` on the interface `name` that failed with `errno`; `capability` is the one that `EPERM` stands for.
    pub(crate) fn of(
        call: &'static str,
        name: &str,
        errno: Errno,
        capability: Capability,
    ) -> Error {
        let name = name.to_owned();
        match errno {
            Errno::PERM => Error::MissingCapability {
                call,
                name,
                capability,
            },
            Errno::NODEV | Errno::NXIO => Error::NoInterface { name },
            errno => Error::Refused { call, name, errno },
        }
    }
}

/// A frame and its virtio-net header do not match; the frame is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// An unknown GSO type.
    #[error("unknown GSO type {kind:#04x} of a super-frame")]
    GsoKind {
        /// As in the header.
        kind: u8,
    },
    /// A super-frame with a segment size of zero.
    #[error("a super-frame has a segment size of zero")]
    ZeroGsoSize,
    /// A super-frame without a partial checksum.
    #[error("a super-frame has a complete checksum instead of a partial one")]
    NoPartialChecksum,
    /// The checksum field lies outside the frame.
    #[error("the checksum at {start}+{offset} lies outside a frame of {len} bytes")]
    Checksum {
        /// Offset at which summing starts.
        start: u16,
        /// Offset of the field from the start.
        offset: u16,
        /// Length of the frame.
        len: usize,
    },
    /// The frame ends within a header.
    #[error("the frame's {len} bytes end within its {header} header")]
    Short {
        /// The truncated header.
        header: &'static str,
        /// Length of the frame.
        len: usize,
    },
    /// The frame does not carry what its header says.
    #[error("the header indicates {indicated}, which the frame does not carry")]
    Mismatch {
        /// What the header indicates.
        indicated: &'static str,
    },
    /// The frame is longer than [`MAX_FRAME_LEN`](crate::MAX_FRAME_LEN).
    #[error("a frame of {len} bytes is longer than {most}")]
    Long {
        /// Length of the frame.
        len: usize,
        /// The limit.
        most: usize,
    },
    /// A super-frame would become more frames than allowed.
    #[error("a super-frame of {payload} bytes in segments of {size} makes more than {most} frames")]
    TooManySegments {
        /// Bytes of payload.
        payload: usize,
        /// Payload of each piece.
        size: usize,
        /// The limit.
        most: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capability_error_names_the_remedy() {
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
    fn missing_interface_is_not_a_permission_error() {
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
