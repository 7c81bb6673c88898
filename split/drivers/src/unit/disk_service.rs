//! Disks for hosts: a host attaches one by the configuration service, and then its packets are block requests instead of frames. A disk that
//! can be written has one host at a time. Requests are copied out of the memory that the host can write before they are checked, and each
//! host has a limited number in progress; further ones wait in its elements.

use std::collections::VecDeque;

use verbena_push::Refused;
use verbena_split_wire::push::Status;

use super::config_service::{Refusal, Reply};
use super::connected_host::{AttachedDisk, HostState};
use super::disks::{BlockDone, BlockJob, DiskError, UnitDisk};
use super::{HostId, Unit, UnitError};
use crate::carrier::Memory;
use crate::disk::{
    BlockReply, BlockRequest, BlockStatus, DiskInfo, HEAD, InvalidBlockRequest, MAX_DEPTH, max_data,
};

impl Unit {
    /// Serves these disks, beside the LAN.
    pub fn with_disks(mut self, disks: Vec<UnitDisk>) -> Result<Unit, UnitError> {
        for disk in disks {
            if self.disks.iter().any(|other| other.name == disk.name()) {
                return Err(DiskError::Duplicate(disk.name().to_owned()).into());
            }
            self.disks.push(disk.start()?);
        }
        Ok(self)
    }

    /// Attaches a disk to a host, which must not use the LAN.
    pub(super) fn open_disk(&mut self, id: HostId, name: &str) -> Reply {
        let refused = |why: String| Refusal(Status::NotAllowed, why);
        let index = self.find_disk(name).map_err(refused)?;
        let disk = self.disks.get(index).ok_or(Status::NotAllowed)?;
        let (info, name) = (disk.info, disk.name.clone());
        let connected = self.hosts.get(&id).ok_or(Status::NotAllowed)?;
        let options = connected.link.options();
        let carrier = self.carriers.get(connected.carrier);
        if carrier.is_some_and(|carrier| carrier.is_lossy()) && !options.kinds.acknowledged {
            let why =
                "a disk needs acknowledged channels: start the host with --delivery acknowledged";
            return Err(refused(why.to_owned()));
        }
        let info = DiskInfo {
            max_data: max_data(options.size),
            ..info
        };
        if info.max_data == 0 {
            let why = format!("packets of {} bytes hold no block", options.size);
            return Err(refused(why));
        }
        let attached = connected.disk.as_ref().map(|disk| disk.index);
        match (connected.state, attached) {
            (HostState::Forming, None) => {}
            _ => {
                let why = "this connection has the LAN or a disk already";
                return Err(refused(why.to_owned()));
            }
        }
        let uses = |disk: &AttachedDisk| disk.index == index;
        let mut others = self.hosts.values();
        let other = others.find(|other| other.disk.as_ref().is_some_and(uses));
        if let Some(other) = other.filter(|_| !info.read_only) {
            let why = format!("disk {name} is in use by {other}");
            return Err(refused(why));
        }
        let connected = self.hosts.get_mut(&id).ok_or(Status::NotAllowed)?;
        connected.state = HostState::Up;
        connected.disk = Some(AttachedDisk {
            index,
            submitted: 0,
            replies: VecDeque::new(),
        });
        self.journal
            .note(&format!("{connected} has attached disk {name}"));
        Ok(info.to_bytes())
    }

    /// The index of a disk; the empty name is that of the only one.
    fn find_disk(&self, name: &str) -> Result<usize, String> {
        let names = || {
            let names: Vec<&str> = self.disks.iter().map(|disk| disk.name.as_str()).collect();
            names.join(", ")
        };
        match (name, self.disks.len()) {
            (_, 0) => Err("this unit has no disks: see --disk of the unit".to_owned()),
            ("", 1) => Ok(0),
            ("", _) => Err(format!("this unit has several disks: {}", names())),
            _ => {
                let found = self.disks.iter().position(|disk| disk.name == name);
                found.ok_or_else(|| format!("no disk {name} here, only {}", names()))
            }
        }
    }

    /// Takes the results of the disks' threads; true if there were any. Those for hosts that are gone are dropped.
    pub(super) fn take_disk_results(&mut self) -> bool {
        let mut any = false;
        for disk in &mut self.disks {
            while let Some(done) = disk.next_done() {
                any = true;
                let host = self.hosts.get_mut(&done.host);
                if let Some(attached) = host.and_then(|host| host.disk.as_mut()) {
                    attached.submitted = attached.submitted.saturating_sub(1);
                    attached.replies.push_back(done);
                }
            }
        }
        any
    }

    /// Takes requests of a host, and sends replies; true if there were any.
    pub(super) fn serve_disk(&mut self, id: HostId) -> bool {
        let mut any = false;
        loop {
            let Some(host) = self.hosts.get_mut(&id) else {
                return any;
            };
            let Some(attached) = &mut host.disk else {
                return any;
            };
            if attached.submitted + attached.replies.len() >= MAX_DEPTH {
                break;
            }
            let taken = match host.link.with_packet(take_request) {
                Ok(Some(taken)) => taken,
                Ok(None) => break,
                Err(lost) => {
                    self.drop_host(id, &lost.to_string());
                    return true;
                }
            };
            any = true;
            let Some(disk) = self.disks.get_mut(attached.index) else {
                return any;
            };
            let info = DiskInfo {
                max_data: max_data(host.link.options().size),
                ..disk.info
            };
            let failed = match taken {
                TakenRequest::Valid(request, data) => match request.check(&info) {
                    Ok(()) => {
                        let context = request.context;
                        let job = BlockJob {
                            host: id,
                            request,
                            data,
                        };
                        match disk.submit(job) {
                            true => {
                                attached.submitted += 1;
                                continue;
                            }
                            // Its thread has ended.
                            false => (context, BlockStatus::Io),
                        }
                    }
                    Err(status) => (request.context, status),
                },
                TakenRequest::Invalid(InvalidBlockRequest { context }) => {
                    (context, BlockStatus::Invalid)
                }
                TakenRequest::TooShort => {
                    host.unfit += 1;
                    continue;
                }
            };
            let (context, status) = failed;
            attached.replies.push_back(BlockDone {
                host: id,
                context,
                status,
                data: Vec::new(),
            });
        }
        any | self.send_replies(id)
    }

    fn send_replies(&mut self, id: HostId) -> bool {
        let mut any = false;
        let Some(host) = self.hosts.get_mut(&id) else {
            return any;
        };
        let Some(attached) = &mut host.disk else {
            return any;
        };
        while host.link.has_room()
            && let Some(mut reply) = attached.replies.pop_front()
        {
            let head = BlockReply {
                context: reply.context,
                status: reply.status,
                len: reply.data.len() as u32,
            };
            match host.link.send(&head.to_bytes(), &reply.data) {
                Ok(()) => any = true,
                // The host has lent elements that are shorter than what it reads.
                Err(Refused::TooLong { .. }) if !reply.data.is_empty() => {
                    (reply.status, reply.data) = (BlockStatus::Invalid, Vec::new());
                    attached.replies.push_front(reply);
                }
                Err(Refused::TooLong { .. }) => host.unfit += 1,
                Err(Refused::Full { .. } | Refused::Backlog { .. }) => {
                    attached.replies.push_front(reply);
                    break;
                }
            }
        }
        any
    }
}

/// A packet of a host with a disk.
enum TakenRequest {
    Valid(BlockRequest, Vec<u8>),
    Invalid(InvalidBlockRequest),
    /// Too short for a context.
    TooShort,
}

/// Copies a request out of the pool.
fn take_request(memory: &dyn Memory, offset: usize, len: usize) -> TakenRequest {
    let mut head = [0; HEAD];
    if len < HEAD || !memory.read(offset, &mut head) {
        return TakenRequest::TooShort;
    }
    let request = match BlockRequest::parse(&head, len) {
        Ok(request) => request,
        Err(invalid) => return TakenRequest::Invalid(invalid),
    };
    let mut data = vec![0; request.data_len()];
    match memory.read(offset + HEAD, &mut data) {
        true => TakenRequest::Valid(request, data),
        false => TakenRequest::Invalid(InvalidBlockRequest {
            context: request.context,
        }),
    }
}
