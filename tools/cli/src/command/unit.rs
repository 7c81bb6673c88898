//! `verbena unit`: arguments of the I/O unit's half of the split driver, and the status of running ones. Ctrl-C disconnects the hosts in
//! order. Every host that can reach the unit may connect, as to a LAN, within the settings `allow` and `deny`.

use std::time::Duration;

use clap::{Args, Subcommand};
use verbena_split::carrier::address::Address;
use verbena_split::carrier::open;
use verbena_split::lane::Lane;
use verbena_split::lanes;
use verbena_split::status::{ConnectedHostStatus, DiskStatus, UnitStatus};
use verbena_split::unit::{LanPort, Unit, UnitDisk, UnitOptions};

use super::driver::{self, StatusText};
use super::iscsi::format_bytes;

mod disk_arg;

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena unit --lan eth1 --listen 0.0.0.0                hosts reach eth1's LAN over RDMA
  verbena unit --lan eth1 --listen 0.0.0.0 --listen udp://0.0.0.0 --listen ethernet://eth0
  verbena unit --lan-tap lan0 --listen 127.0.0.1:9000     the LAN is an interface that the unit creates
  verbena unit --lan eth1 --listen 0.0.0.0 --queues 2     hosts connect with two queues, at two ports
  verbena unit --lan eth1 --listen 0.0.0.0 --disk data=/srv/data.img --disk scratch=ram:1G   disks for hosts, too
  verbena unit status                                     its status and its hosts

--lan needs CAP_NET_RAW, --lan-tap CAP_NET_ADMIN: as root, or in a separate network namespace (unshare -Urn).
Hosts are not authenticated, as stations of a LAN are not: listen only on networks whose stations are trusted.";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct UnitArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// The LAN side: an existing Ethernet interface
    #[arg(long, value_name = "INTERFACE", required_unless_present = "lan_tap")]
    lan: Option<String>,
    /// The LAN side: an interface to create
    #[arg(long, value_name = "NAME", conflicts_with = "lan")]
    lan_tap: Option<String>,
    /// The address to which hosts connect: iwarp://ADDRESS[:PORT] (or just ADDRESS), udp://ADDRESS[:PORT], ethernet://INTERFACE;
    /// may be given several times
    #[arg(long, required = true, value_name = "ADDRESS")]
    listen: Vec<Address>,
    /// Connected hosts at once, at most
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=255))]
    hosts: u16,
    /// Connected hosts at once from one source, at most: an IPv4 address, an IPv6 /64 network, or a MAC address (ethernet)
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    hosts_per_source: u16,
    /// Accept only hosts with acknowledged, or only those with unacknowledged channels (udp, ethernet); both if not given
    #[arg(long, value_name = "KIND")]
    delivery: Option<driver::Delivery>,
    /// Accept only hosts with a connected, or only those with a connectionless data channel; both if not given
    #[arg(long, value_name = "KIND")]
    data_channel: Option<driver::DataChannel>,
    /// How hosts are told of a packet in their memory (arrangement b): by immediate data where it fits, or always by a message with the
    /// element or the address and length
    #[arg(long, value_name = "FORM")]
    indication: Option<driver::Indication>,
    /// Packets in flight, each direction, per host, at most
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(4..=4096))]
    elements: u32,
    /// Queues, each with a thread, a socket on the LAN, and ports and buffers of its own: hosts must have as many. The first
    /// listens at the port of --listen, the others at the ports that follow (iwarp, udp). They speed up several connections at a time,
    /// not a single one
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = driver::queues())]
    queues: u8,
    /// A disk for hosts, beside the LAN: a file or block device ([NAME=]PATH, with ,ro for read-only) or memory ([NAME=]ram:SIZE);
    /// may be given several times
    #[arg(long, value_name = "DISK", value_parser = disk_arg::parse)]
    disk: Vec<disk_arg::DiskArg>,
    /// Offer hosts no offloads: they compute checksums and segment packets themselves
    #[arg(long)]
    no_offloads: bool,
    /// Allow hosts to request promiscuous mode: to receive frames for other addresses and to send from them, as a bridge must
    #[arg(long)]
    allow_promiscuous: bool,
    /// Seconds after which a learned MAC address of a LAN station ages out; until then no host can be assigned it
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    mac_age: u64,
    /// Payload bytes of a cell (udp, ethernet); as much as a frame of the path holds if not given
    #[arg(long, value_name = "BYTES")]
    cell: Option<u16>,
    /// Seconds without a message after which a host counts as disconnected
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,
    /// Open an adapter for the events of the channels, which `verbena events` shows (udp, ethernet; iwarp has one in any case)
    #[arg(long)]
    channel_events: bool,
    /// Print errors only
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Show the status of this user's drivers
    Status {
        /// Only the driver with this LAN interface
        lan: Option<String>,
        /// Print JSON, one object per line
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &UnitArgs) -> u8 {
    if let Some(Action::Status { lan, json }) = &args.action {
        return driver::status("unit", lan.as_deref(), *json);
    }
    driver::exit_code(drive(args))
}

fn drive(args: &UnitArgs) -> Result<(), Box<dyn std::error::Error>> {
    let mut disks = Vec::new();
    for disk in &args.disk {
        disks.push(UnitDisk::open(&disk.name, &disk.backing)?);
    }
    let ports = match (&args.lan, &args.lan_tap) {
        (Some(name), _) => LanPort::interface_named(name, args.queues)?,
        (None, Some(name)) => LanPort::tap_named(name, args.queues)?,
        (None, None) => return Err("--lan or --lan-tap is needed".into()),
    };
    let options = UnitOptions {
        hosts: usize::from(args.hosts),
        hosts_per_source: usize::from(args.hosts_per_source),
        kinds: driver::kind_choice(args.delivery, args.data_channel),
        indication: driver::indication_mode(args.indication),
        elements: args.elements,
        offloads: !args.no_offloads,
        promiscuous: args.allow_promiscuous,
        mac_age: Duration::from_secs(args.mac_age),
        patience: Duration::from_secs(args.patience),
        // All queues share the welcome made here.
        ..UnitOptions::default()
    };
    let events = driver::ChannelEvents::open(args.channel_events)?;
    let stop = driver::stop()?;
    let mut units = Vec::new();
    for (lane, lan) in Lane::all(args.queues).zip(ports) {
        let mut carriers = Vec::new();
        for address in &args.listen {
            carriers.push(events.of(open::listen(&address.of_queue(lane)?, args.cell)?));
        }
        let options = UnitOptions {
            lane,
            ..options.clone()
        };
        let journal = driver::journal("unit", lane, args.quiet);
        let unit = Unit::new(options, lan, carriers, journal)?;
        // The first queue serves all disks.
        units.push(unit.with_disks(core::mem::take(&mut disks))?);
    }
    if let (Some(first), false) = (units.first(), args.quiet) {
        let (status, with) = (first.status(), driver::queues_suffix(args.queues));
        let at = status.listens.join(", ");
        eprintln!(
            "unit: LAN {}, hosts connect to {at}{with}; Ctrl-C ends it",
            status.lan
        );
    }
    Ok(lanes::run("unit", &mut units, &stop)?)
}

impl StatusText for UnitStatus {
    fn lines(&self) -> Vec<String> {
        let link = if self.link { "up" } else { "down" };
        let mut lines = vec![
            format!(
                "{}{} (process {}): link {link}, MTU {}",
                self.lan,
                driver::queue_suffix(self.queue, self.queues),
                self.pid,
                self.mtu
            ),
            format!("  listens       {}", self.listens.join(", ")),
            format!(
                "  LAN frames    {} in, {} out, {} lost",
                self.frames_in, self.frames_out, self.dropped
            ),
            format!("  addresses     {}", self.addresses),
            format!("  rejected      {}", self.rejected),
            format!("  hosts         {}", self.hosts.len()),
        ];
        lines.extend(self.hosts.iter().flat_map(guest));
        lines.extend(self.disks.iter().map(disk_line));
        lines
    }
}

fn disk_line(disk: &DiskStatus) -> String {
    let how = if disk.read_only { ", read-only" } else { "" };
    format!(
        "  disk {} ({}{how}): {} requests, {} failed",
        disk.name,
        format_bytes(disk.bytes),
        disk.requests,
        disk.failed
    )
}

fn guest(guest: &ConnectedHostStatus) -> Vec<String> {
    let disk = guest.disk.as_ref().map(|disk| format!("disk {disk}"));
    let mac = disk.as_deref().or(guest.mac.as_deref());
    let mac = mac.unwrap_or("no address yet");
    let hears = if guest.promiscuous {
        ", promiscuous"
    } else {
        ""
    };
    vec![
        format!(
            "  {} ({}, {}, arrangement {}): {}, {mac}{hears}",
            guest.name, guest.from, guest.carrier, guest.arrangement, guest.phase
        ),
        format!("    channels    {}", guest.channels),
        format!("    frames      {}", driver::counts(&guest.counts)),
        format!("  {}", driver::messages(&guest.messages)),
    ]
}
