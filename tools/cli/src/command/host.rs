//! `verbena host`: arguments of the host's half of the split driver, and the status of running ones. Ctrl-C disconnects from the unit in
//! order. Addresses and routes of the interface are configured by other tools.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use verbena_split::carrier::address::Address;
use verbena_split::carrier::open;
use verbena_split::channel_kinds::KindChoice;
use verbena_split::host::{Host, HostOptions, MacChoice, SharedTap};
use verbena_split::lan::Mac;
use verbena_split::lane::Lane;
use verbena_split::lanes;
use verbena_split::status::HostStatus;
use verbena_split::{Arrangement, IndicationMode};

use super::driver::{self, StatusText};

mod disk;

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena host --connect 10.0.0.7 --tap net0             a card in 10.0.0.7, over RDMA
  verbena host --connect udp://10.0.0.7 --tap net0       the same over cells in UDP datagrams
  verbena host --connect ethernet://eth0/02:00:00:00:00:07 --tap net0
  verbena host --connect 10.0.0.7 --tap net0 --queues 2  two queues, for several connections at a time
  verbena host --connect udp://10.0.0.7 --tap net0 --arrangement a --data-channel connectionless
  ip addr add 192.168.9.2/24 dev net0; ip link set net0 up
  verbena host --connect 10.0.0.7 --disk data --nbd-socket disk.sock   a disk of the unit, for nbdcopy, qemu and others
  verbena host status                                    its status

Creating an interface needs CAP_NET_ADMIN: as root, in a separate network namespace (unshare -Urn), or with an interface that
an administrator made (ip tuntap add net0 mode tap user USER, with multi_queue before user for several queues).";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct HostArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// The unit: iwarp://HOST[:PORT] (or just HOST), udp://HOST[:PORT], ethernet://INTERFACE/MAC
    #[arg(long, required = true, value_name = "UNIT")]
    connect: Option<Address>,
    /// The interface to create, or a pattern such as tap%d
    #[arg(
        long,
        required_unless_present = "disk",
        conflicts_with = "disk",
        value_name = "NAME"
    )]
    tap: Option<String>,
    #[command(flatten)]
    disk: disk::DiskArgs,
    /// Name of this host in the unit's status; the machine's name if not given
    #[arg(long)]
    name: Option<String>,
    /// How packets travel: a (sends, unacknowledged), b (RDMA writes), c (inside messages)
    #[arg(long, default_value = "b", value_parser = arrangement)]
    arrangement: Arrangement,
    /// acknowledged: every packet arrives, or the connection ends; unacknowledged: packets may be lost (udp, ethernet). As the arrangement
    /// has it if not given; b is always acknowledged
    #[arg(long, value_name = "KIND")]
    delivery: Option<driver::Delivery>,
    /// connected, or connectionless: each packet is one cell, which limits the MTU, and there are no offloads (udp, ethernet; a and b)
    #[arg(long, value_name = "KIND")]
    data_channel: Option<driver::DataChannel>,
    /// How the unit is told of a packet in its memory (arrangement b): by immediate data where it fits, or always by a message with the
    /// element or the address and length
    #[arg(long, value_name = "FORM")]
    indication: Option<driver::Indication>,
    /// The interface's Ethernet address, or `unit` for one that the unit assigns
    #[arg(long, value_parser = mac)]
    mac: Option<MacChoice>,
    /// The interface's MTU; the LAN's if not given
    #[arg(long)]
    mtu: Option<u32>,
    /// Packets in flight, each direction, at most
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(4..=4096))]
    elements: u32,
    /// Queues, each with a thread, buffers and a connection of its own: as many as the unit has, at its port and the ports that follow
    /// (iwarp, udp). They speed up several connections at a time, not a single one
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = driver::queues())]
    queues: u8,
    /// Compute checksums and segment packets on this host instead of offloading both to the unit
    #[arg(long)]
    no_offloads: bool,
    /// Payload bytes of a cell (udp, ethernet); as much as a frame of the path holds if not given
    #[arg(long, value_name = "BYTES")]
    cell: Option<u16>,
    /// Seconds without a message after which the unit counts as disconnected
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
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
        /// Only the driver of this interface
        tap: Option<String>,
        /// Print JSON, one object per line
        #[arg(long)]
        json: bool,
    },
}

fn arrangement(text: &str) -> Result<Arrangement, String> {
    match text.to_ascii_lowercase().as_str() {
        "a" => Ok(Arrangement::Sends),
        "b" => Ok(Arrangement::Writes),
        "c" => Ok(Arrangement::Single),
        _ => Err("use a, b or c".to_owned()),
    }
}

fn mac(text: &str) -> Result<MacChoice, String> {
    if text == "unit" {
        return Ok(MacChoice::Unit);
    }
    let mac: Mac = text
        .parse()
        .map_err(|no: verbena_split::lan::ParseMacError| no.to_string())?;
    match mac.is_station() {
        true => Ok(MacChoice::Fixed(mac)),
        false => Err(format!("{mac} cannot be a station's address")),
    }
}

pub(crate) fn run(args: &HostArgs) -> u8 {
    if let Some(Action::Status { tap, json }) = &args.action {
        return driver::status("host", tap.as_deref(), *json);
    }
    driver::exit_code(match &args.disk.disk {
        Some(disk) => disk::serve(args, disk),
        None => drive(args),
    })
}

/// The attributes of channels and the form of indications, checked before anything is created.
fn channel_options(
    args: &HostArgs,
    unit: &Address,
) -> Result<(KindChoice, IndicationMode), Box<dyn std::error::Error>> {
    let kinds = driver::kind_choice(args.delivery, args.data_channel);
    kinds.kinds(args.arrangement)?;
    if kinds != KindChoice::default() && matches!(unit, Address::Iwarp(_)) {
        return Err(format!(
            "{unit}: --delivery and --data-channel need udp:// or ethernet://: over iwarp:// every channel is connected and acknowledged"
        )
        .into());
    }
    if args.indication.is_some() && args.arrangement != Arrangement::Writes {
        return Err("--indication needs arrangement b: the others have no RDMA writes".into());
    }
    Ok((kinds, driver::indication_mode(args.indication)))
}

fn drive(args: &HostArgs) -> Result<(), Box<dyn std::error::Error>> {
    let (Some(unit), Some(tap)) = (&args.connect, &args.tap) else {
        return Err("both --connect and --tap are needed".into());
    };
    let (kinds, indication) = channel_options(args, unit)?;
    let options = HostOptions {
        name: args.name.clone().unwrap_or_else(driver::host_name),
        arrangement: args.arrangement,
        kinds,
        indication,
        elements: args.elements,
        mac: args.mac.unwrap_or(MacChoice::Own),
        mtu: args.mtu,
        offloads: !args.no_offloads,
        patience: Duration::from_secs(args.patience),
        ..HostOptions::new(tap)
    };
    let events = driver::ChannelEvents::open(args.channel_events)?;
    let stop = driver::stop()?;
    let cell = args.cell;
    let mut carriers = Vec::new();
    for lane in Lane::all(args.queues) {
        let unit = unit.of_queue(lane)?;
        carriers.push((lane, events.of(open::dial(&unit, cell)?), unit));
    }
    let cable = Arc::new(SharedTap::create(tap, args.queues)?);
    let mut hosts = Vec::new();
    for (lane, carrier, unit) in carriers {
        let options = HostOptions {
            lane,
            ..options.clone()
        };
        let (cable, name) = (Arc::clone(&cable), unit.to_string());
        let journal = driver::journal("host", lane, args.quiet);
        let host = Host::for_queue(cable, options, carrier, &name, journal)?;
        let events = events.clone();
        hosts.push(host.with_reopen(move || Ok(events.of(open::dial(&unit, cell)?))));
    }
    if !args.quiet {
        let (tap, with) = (
            cable.tap().interface().name()?,
            driver::queues_suffix(args.queues),
        );
        eprintln!("host: interface {tap} connects to {unit}{with}; Ctrl-C ends it");
    }
    Ok(lanes::run("host", &mut hosts, &stop)?)
}

impl StatusText for HostStatus {
    fn lines(&self) -> Vec<String> {
        let link = if self.link { "up" } else { "down" };
        let offloads = match self.offloads.as_slice() {
            [] => "none".to_owned(),
            some => some.join(" "),
        };
        let mut lines = vec![
            format!(
                "{}{} (process {}): {}",
                self.tap,
                driver::queue_suffix(self.queue, self.queues),
                self.pid,
                self.phase
            ),
            format!(
                "  unit          {} (arrangement {})",
                self.unit, self.arrangement
            ),
            format!(
                "  address       {}, MTU {}, link {link}",
                self.mac, self.mtu
            ),
            format!("  offloads      {offloads}"),
            format!(
                "  frames        {} out, {} in, {} lost here",
                self.frames_out, self.frames_in, self.dropped
            ),
            format!("  channels      {}", self.channels),
            format!("  connections   {}", self.connections),
            driver::messages(&self.messages),
        ];
        if let Some(why) = &self.why {
            lines.push(format!("  last ended    {why}"));
        }
        if let Some(at_unit) = &self.at_unit {
            lines.push(format!("  at the unit   {}", driver::counts(at_unit)));
        }
        lines
    }
}
