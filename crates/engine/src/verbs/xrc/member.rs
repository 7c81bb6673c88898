//! A process's membership in an XRC domain that a file names: its number, and how it finds the others.
//! Names are abstract, so they belong to the network namespace, have no file, and are free again when their process ends, however it ends. The user at
//! the other end is checked in both directions.

use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Weak};

use verbena_nic::{XrcDomain, XrcPath, XrcProcesses};
use verbena_wire::Srqn;

use super::open_target::{FindTarget, TargetElsewhere, Targets};
use super::path::Path;
use super::server::Server;
use super::{MEMBERS, QUEUES, XrcHost};
use crate::error::Error;
use crate::poll::shard::Shards;
use crate::sys::{self, PacketChannel, PacketListener};

/// How long a process waits for another one that is opening the same domain.
const OPEN_WAIT: Duration = Duration::from_secs(5);

/// A file, which names a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct XrcFile {
    /// Its device and inode.
    pub(crate) inode: (u64, u64),
    /// The domain may be new.
    pub(crate) create: bool,
    /// It must be new.
    pub(crate) exclusive: bool,
}

/// The names of a domain.
#[derive(Debug, Clone)]
struct Names(String);

impl Names {
    fn new((device, inode): (u64, u64)) -> Names {
        let user = sys::effective_uid();
        Names(format!("verbena-xrc/{user}/{device:x}.{inode:x}"))
    }

    fn member(&self, number: u32) -> String {
        format!("{}/{number}", self.0)
    }

    /// Held while a process joins.
    fn lock(&self) -> Result<PacketListener, Error> {
        let name = format!("{}/lock", self.0);
        let mut taken = PacketListener::bind(&name);
        let is_free =
            |taken: &sys::Result<PacketListener>| !taken.as_ref().is_err_and(sys::Error::is_in_use);
        sys::wait(sys::now() + OPEN_WAIT, || {
            if !is_free(&taken) {
                taken = PacketListener::bind(&name);
            }
            is_free(&taken)
        });
        Ok(taken?)
    }

    /// A channel to the member with this number; none if there is none, or it is not of this user.
    fn reach(&self, number: u32) -> Option<PacketChannel> {
        PacketChannel::connect(&self.member(number)).ok()
    }

    /// Another process has the domain.
    fn has_member(&self) -> bool {
        (0..MEMBERS).any(|number| self.reach(number).is_some())
    }

    /// Takes a free number, from a random one on: that of a process that ended a moment ago is unlikely to be taken.
    fn join(&self) -> Result<(u32, PacketListener), Error> {
        let first = sys::random_u64()? as u32 % MEMBERS;
        for at in 0..MEMBERS {
            let number = (first + at) % MEMBERS;
            match PacketListener::bind(&self.member(number)) {
                Ok(listener) => return Ok((number, listener)),
                Err(error) if error.is_in_use() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(sys::Error::xrc_domain_full().into())
    }
}

/// Where other processes of the domain are found.
struct Processes {
    names: Names,
    own: u32,
    host: Weak<dyn XrcHost>,
    shards: Arc<Shards>,
}

impl XrcProcesses for Processes {
    fn process_of(&self, number: Srqn) -> Option<u32> {
        let process = number.get() / QUEUES;
        (process != self.own).then_some(process)
    }

    fn connect(&self, process: u32, qp: u32) -> Option<Arc<dyn XrcPath>> {
        let channel = self.names.reach(process)?;
        let shard = self.shards.pick().ok()?;
        let path = Path::new(self.host.clone(), shard, channel, qp).ok()?;
        Some(Arc::new(path))
    }
}

impl fmt::Debug for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Processes");
        f.field("names", &self.names).field("own", &self.own);
        f.finish_non_exhaustive()
    }
}

/// This process in a domain; it leaves when this is dropped.
pub(crate) struct Member {
    names: Names,
    own: u32,
    targets: Arc<Targets>,
    server: Arc<Server>,
}

impl Member {
    /// Joins the domain that a file names, and returns it. As the kernel does: EAGAIN if there is none and none shall be created, EINVAL if there is
    /// one and it must be new.
    pub(crate) fn join(
        host: Weak<dyn XrcHost>,
        shards: &Arc<Shards>,
        file: XrcFile,
        patience: Duration,
    ) -> Result<(Member, Arc<XrcDomain>), Error> {
        let names = Names::new(file.inode);
        let lock = names.lock()?;
        if (file.exclusive || !file.create) && names.has_member() == file.exclusive {
            return Err(match file.exclusive {
                true => sys::Error::xrc_domain_exists(),
                false => sys::Error::no_xrc_domain(),
            }
            .into());
        }
        let (own, listener) = names.join()?;
        drop(lock);
        let processes = Box::new(Processes {
            names: names.clone(),
            own,
            host: host.clone(),
            shards: shards.clone(),
        });
        let base = sys::random_u64()? as u32;
        let domain = Arc::new(XrcDomain::shared(base, (own * QUEUES, QUEUES), processes));
        let targets = Arc::<Targets>::default();
        let parts = (domain.clone(), targets.clone());
        let server = Server::start(host, parts, shards.pick()?, listener, patience)?;
        let member = Member {
            names,
            own,
            targets,
            server,
        };
        Ok((member, domain))
    }

    /// Sets how other processes find targets of this one.
    pub(crate) fn set_targets(&self, find: Box<FindTarget>) {
        self.targets.set(find);
    }

    /// Opens a target of another process by the number that peers know; none if there is none.
    pub(crate) fn open_target(&self, number: u32) -> Option<TargetElsewhere> {
        (0..MEMBERS)
            .filter(|process| *process != self.own)
            .filter_map(|process| self.names.reach(process))
            .find_map(|channel| TargetElsewhere::open(channel, number))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.server.close();
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Member");
        f.field("names", &self.names).field("own", &self.own);
        f.finish_non_exhaustive()
    }
}
