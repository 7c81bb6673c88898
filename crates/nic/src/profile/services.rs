//! Services of logical devices, and sets of them (V2).
//! A set is a bit mask and is shown in one order, whatever order it was made in.

use core::fmt;

/// A service of a logical device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Service {
    /// An RDMA device.
    Rdma,
    /// A plain network card. Not implemented.
    Nic,
    /// An iSCSI initiator (M12).
    Iscsi,
}

impl Service {
    /// All of them.
    pub const ALL: [Service; 3] = [Service::Rdma, Service::Nic, Service::Iscsi];

    /// It is implemented; the others can be named, but not used.
    pub const fn is_implemented(self) -> bool {
        Services::IMPLEMENTED.has(self)
    }

    /// Its name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Service::Rdma => "rdma",
            Service::Nic => "nic",
            Service::Iscsi => "iscsi",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Several services, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Services(u8);

impl Services {
    /// Those that are implemented.
    pub const IMPLEMENTED: Services = Services(Service::Rdma.bit() | Service::Iscsi.bit());

    /// The set contains it.
    pub const fn has(self, service: Service) -> bool {
        self.0 & service.bit() != 0
    }

    /// The set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The services, in the order of [`Service::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Service> {
        Service::ALL.into_iter().filter(move |s| self.has(*s))
    }
}

impl FromIterator<Service> for Services {
    fn from_iter<T: IntoIterator<Item = Service>>(all: T) -> Services {
        Services(
            all.into_iter()
                .fold(0, |bits, service| bits | service.bit()),
        )
    }
}

/// As in settings: `rdma+iscsi`.
impl fmt::Display for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        let words: Vec<&str> = self.iter().map(Service::name).collect();
        f.write_str(&words.join("+"))
    }
}
