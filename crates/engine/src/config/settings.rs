//! The list of all settings: name, type, default, form and meaning.
//! The fields, the parser, the printer and the table of docs/configuration.md are generated from it.
//! Settings that contradict each other are an error.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::path::PathBuf;

use verbena_events::arrangement::Arrangement;
use verbena_events::eqe::Form as EntryForm;
use verbena_events::message_map::MAX_QUEUES;
use verbena_events::moderation::Moderation;
use verbena_events::toeplitz::Key as HashKey;
use verbena_events::vector::MAX_VECTORS;
use verbena_mem::Policy;
use verbena_nic::Personality;
use verbena_nic::profile::{LogicalDevice, Rule};
use verbena_wire::mpa::enhanced::RtrKinds;
use verbena_wire::mpa::startup::Revision;

use super::device::Device;
use super::form::{
    Bytes, Devices, DurationRange, Faults, FileName, Form, HandlerTable, HexKey, Keyword, Label,
    ModerationForm, NetworkList, Number, Or, PeerList, PortForm, Ports, ProcessorRanges, Rtr,
    Secret, Switch,
};
use super::key::Key;
use super::keywords::{
    Acknowledge, Choice, EventMemory, Fpdu, Log, Profile, Routing, TlsMode, Wire,
};
use super::networks::Networks;
use super::peers::Peers;
use super::port::PortSetting;
use super::presents::{Owners, Presents};
use super::problem::ConfigError;
use crate::faults::Script;
use crate::notify::handler::{MAX_HANDLERS, columns};

/// The description of one setting.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) doc: &'static str,
    pub(super) secret: bool,
    /// Parses a text into the field; false, and nothing changed, if it is not one of its values.
    pub(super) set: fn(&mut Settings, &str) -> bool,
    pub(super) show: fn(&Settings) -> String,
    pub(super) wants: fn() -> String,
    pub(super) same: fn(&Settings, &Settings) -> bool,
}

macro_rules! settings {
    ($( #[doc = $doc:literal] $name:ident: $type:ty = $default:expr, $form:expr; )+) => {
        /// The value of every setting.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings {
            $( #[doc = $doc] pub $name: $type, )+
        }

        impl Default for Settings {
            fn default() -> Settings {
                Settings { $( $name: $default, )+ }
            }
        }

        pub(super) const KEYS: &[Entry] = &[
            $( Entry {
                name: stringify!($name),
                doc: $doc,
                secret: matches!(stringify!($name).as_bytes(), b"key"),
                set: |settings, text| {
                    let read: Option<$type> = $form.read(text);
                    let good = read.is_some();
                    if let Some(value) = read {
                        settings.$name = value;
                    }
                    good
                },
                show: |settings| $form.show(&settings.$name),
                wants: || Form::<$type>::wants(&$form),
                same: |a, b| a.$name == b.$name,
            }, )+
        ];
    };
}

const PERSONALITIES: &[(&str, Personality)] =
    &[("roce", Personality::Roce), ("iwarp", Personality::Iwarp)];
const REMOTE_ACCESS: &[(&str, Policy)] =
    &[("verbs", Policy::Verbs), ("windows", Policy::WindowsOnly)];
const CHOICES: &[(&str, Choice)] = &[
    ("auto", Choice::Auto),
    ("on", Choice::On),
    ("off", Choice::Off),
];
const FPDUS: &[(&str, Fpdu)] = &[
    ("auto", Fpdu::Auto),
    ("mss", Fpdu::Mss),
    ("large", Fpdu::Large),
];
pub(super) const PROFILES: &[(&str, Profile)] = &[
    ("verbena", Profile::Verbena),
    ("siw", Profile::Siw),
    ("standard", Profile::Standard),
    ("roce", Profile::Roce),
];
const WIRES: &[(&str, Wire)] = &[
    ("auto", Wire::Auto),
    ("tcp", Wire::Tcp),
    ("roce", Wire::Roce),
];
const REVISIONS: &[(&str, Revision)] = &[("1", Revision::One), ("2", Revision::Two)];
const TLS_MODES: &[(&str, TlsMode)] = &[
    ("off", TlsMode::Off),
    ("psk", TlsMode::Psk),
    ("cert", TlsMode::Cert),
];
const LOGS: &[(&str, Log)] = &[
    ("off", Log::Off),
    ("error", Log::Error),
    ("warn", Log::Warn),
    ("info", Log::Info),
    ("debug", Log::Debug),
    ("trace", Log::Trace),
];

pub(super) const ARRANGEMENTS: &[(&str, Arrangement)] = &[
    ("one_queue_line", Arrangement::OneQueueLine),
    ("processor_queues_line", Arrangement::ProcessorQueuesLine),
    ("duty_queues_line", Arrangement::DutyQueuesLine),
    ("all_queues_line", Arrangement::AllQueuesLine),
    ("one_queue_one_vector", Arrangement::OneQueueOneVector),
    (
        "one_queue_processor_vectors",
        Arrangement::OneQueueProcessorVectors,
    ),
    ("one_queue_duty_vectors", Arrangement::OneQueueDutyVectors),
    ("one_queue_all_vectors", Arrangement::OneQueueAllVectors),
    (
        "processor_queues_one_vector",
        Arrangement::ProcessorQueuesOneVector,
    ),
    (
        "processor_queues_processor_vectors",
        Arrangement::ProcessorQueuesProcessorVectors,
    ),
    (
        "processor_queues_duty_vectors",
        Arrangement::ProcessorQueuesDutyVectors,
    ),
    (
        "processor_queues_all_vectors",
        Arrangement::ProcessorQueuesAllVectors,
    ),
    (
        "several_queues_several_vectors",
        Arrangement::SeveralQueuesSeveralVectors,
    ),
    (
        "all_queues_grouped_vectors",
        Arrangement::AllQueuesGroupedVectors,
    ),
    ("duty_queues_one_vector", Arrangement::DutyQueuesOneVector),
    (
        "duty_queues_processor_vectors",
        Arrangement::DutyQueuesProcessorVectors,
    ),
    (
        "duty_queues_duty_vectors",
        Arrangement::DutyQueuesDutyVectors,
    ),
    ("duty_queues_all_vectors", Arrangement::DutyQueuesAllVectors),
    ("all_queues_one_vector", Arrangement::AllQueuesOneVector),
    (
        "all_queues_processor_vectors",
        Arrangement::AllQueuesProcessorVectors,
    ),
    ("all_queues_duty_vectors", Arrangement::AllQueuesDutyVectors),
    ("all_queues_all_vectors", Arrangement::AllQueuesAllVectors),
];
const ROUTINGS: &[(&str, Routing)] = &[
    ("processor", Routing::Processor),
    ("hash", Routing::Hash),
    ("queue", Routing::Queue),
];
const ENTRY_FORMS: &[(&str, EntryForm)] = &[("4", EntryForm::Short), ("16", EntryForm::Long)];
const EVENT_MEMORIES: &[(&str, EventMemory)] = &[
    ("contiguous", EventMemory::Contiguous),
    ("paged", EventMemory::Paged),
];
const ACKNOWLEDGES: &[(&str, Acknowledge)] =
    &[("eager", Acknowledge::Eager), ("lazy", Acknowledge::Lazy)];

/// Entries of the largest event queue at the start; a full one grows.
const MAX_EVENT_ENTRIES: u64 = 1 << 16;

/// The largest read depth that startup can carry (RFC 6581 §9.1), without the value that means that no depth is stated.
const MAX_DEPTH: u64 = 0x3ffe;

const fn seconds(first: u64, last: u64) -> DurationRange {
    DurationRange(Duration::from_secs(first)..=Duration::from_secs(last))
}

const fn millis(first: u64, last: u64) -> DurationRange {
    DurationRange(Duration::from_millis(first)..=Duration::from_millis(last))
}

const WRITE_OR_READ: RtrKinds = RtrKinds {
    send: false,
    write: true,
    read: true,
};

settings! {
    /// The semantics that the adapter presents: `roce` as most programs expect, `iwarp` as a standard iWARP adapter.
    personality: Personality = Personality::Roce, Keyword(PERSONALITIES);
    /// The protocol of connections and datagrams, unless `peers` has an entry for the peer: `tcp` is iWARP, `roce` is RoCEv2 over UDP port 4791, and `auto` is iWARP, or RoCEv2 where the peer refuses it (docs/roce.md).
    wire: Wire = Wire::Auto, Keyword(WIRES);
    /// The network between RoCEv2 peers loses no packets (pause frames, PFC): the window of unacknowledged packets is as large as it may be from the start, and neither loss nor congestion notifications shrink it.
    roce_lossless: bool = false, Switch;
    /// Packets of connections over RoCEv2, and messages of its connection manager, that are dropped when they arrive, of a million: for tests of programs on a lossy network. Datagrams are not dropped, since few programs repeat them.
    roce_loss: u32 = 0, Number(0..=500_000);
    /// The device name, for programs that choose a device by name.
    name: String = "verbena0".to_owned(), Label;
    /// Virtual functions beside the physical one: C programs see them as separate devices, called `name`, `v` and a number (docs/functions.md).
    functions: u16 = 0, Number(0..=14);
    /// Logical devices as which the adapter appears, with the services of each; `auto` is `name` and one more for each of `functions`, each with all available services: `rdma+iscsi`.
    presents: Option<Vec<LogicalDevice>> = None, Or("auto", Presents);
    /// The logical device that packets belong to, by address, port or connection; the most specific rule applies, and all other packets belong to the first device.
    owners: Vec<Rule> = Vec::new(), Owners;
    /// The adapter's addresses; `auto` is all those of the first interface that other hosts can reach, else loopback.
    device: Device = Device::Auto, Devices;
    /// A port of the adapter's own, on which it speaks Ethernet, IP and TCP itself: a TAP interface, or a cable to `verbena switch`, with addresses that no other process has (docs/tcpip.md). Connections over TCP from and to these addresses use it.
    port: Option<PortSetting> = None, Or("none", PortForm);
    /// Source addresses that may connect and send datagrams; empty allows all. It applies to every kind of listener.
    allow: Networks = Networks::default(), NetworkList;
    /// Source addresses that may not connect or send datagrams, even if `allow` names them.
    deny: Networks = Networks::default(), NetworkList;
    /// Ports of out-of-band connections and datagrams, below the ephemeral range.
    ports: RangeInclusive<u16> = 20_000..=29_999, Ports;
    /// Added to the port of every rdma_cm listen and connect, where the port itself is used by an ordinary server.
    cm_port_offset: u16 = 0, Number(0..=65_534);
    /// The UDP port of multicast datagrams, the same in the whole network.
    multicast_port: u16 = 19_999, Number(1024..=65_535);
    /// Checksums; `auto` is off towards this host and on across hosts. If either side requests them, both send them.
    crc: Choice = Choice::Auto, Keyword(CHOICES);
    /// Pass connections between processes of one host through shared memory: `auto` where the peer's address is one of this host, `on` also where it may be behind another address, as in containers (docs/same-host.md).
    same_host: Choice = Choice::Auto, Keyword(CHOICES);
    /// Connections in shared memory at once; further ones stay on TCP.
    same_host_connections: u32 = 256, Number(0..=65_535);
    /// The size of each direction's ring in shared memory, a quarter of it from the 65th connection on; the next power of two is used.
    same_host_ring: usize = 1 << 20, Bytes(4096..=16 << 20);
    /// A folder with sockets by which processes in other network namespaces are found, as in containers that share it: only this user may have access to it (docs/same-host.md).
    same_host_path: Option<PathBuf> = None, Or("none", FileName);
    /// Frames that fit a TCP segment, or long ones; `auto` is large towards Verbena and mss towards others.
    fpdu: Fpdu = Fpdu::Auto, Keyword(FPDUS);
    /// Ask peers for MPA markers.
    markers: bool = false, Switch;
    /// The revision of the MPA Requests that the adapter sends.
    mpa_revision: Revision = Revision::Two, Keyword(REVISIONS);
    /// Ready-to-receive messages that the adapter offers and accepts.
    rtr: RtrKinds = WRITE_OR_READ, Rtr;
    /// Inbound reads and atomics served at once, unless the program sets it.
    ird: u16 = 128, Number(0..=MAX_DEPTH);
    /// Outbound reads and atomics requested at once, unless the program sets it.
    ord: u16 = 128, Number(0..=MAX_DEPTH);
    /// Offer and accept Verbena's extensions (docs/extensions.md).
    extensions: bool = true, Switch;
    /// Immediate data and atomics of RFC 7306 towards peers without the extensions; `auto` is off, because siw refuses them.
    rfc7306: Choice = Choice::Auto, Keyword(CHOICES);
    /// The implementation that peers are expected to be, unless `peers` has an entry for them.
    profile: Profile = Profile::Verbena, Keyword(PROFILES);
    /// Profiles of peers by network; the longest prefix applies.
    peers: Peers = Peers::default(), PeerList;
    /// The shortest run of payload that is transferred directly between socket and memory.
    direct_min: u32 = 16 << 10, Bytes(1..=1 << 30);
    /// Bytes read beyond such a run, in the same system call.
    lookahead: usize = 128, Bytes(0..=64 << 10);
    /// Bytes framed ahead of the socket.
    batch: usize = 256 << 10, Bytes(4096..=64 << 20);
    /// Requests after which an acknowledgement is sent at the latest.
    ack_requests: u32 = 64, Number(1..=1 << 20);
    /// Bytes after which an acknowledgement is sent at the latest.
    ack_bytes: u64 = 256 << 10, Bytes(1..=1 << 30);
    /// How long a polling thread may defer an acknowledgement: until it posts or polls again, and if it does neither, about `lend_time`; the next ones are then sent at once. `0s` defers none.
    ack_delay: Duration = Duration::from_micros(100), millis(0, 1000);
    /// Threads that serve connections; `auto` is one per processor.
    shards: Option<u16> = None, Or("auto", Number(1..=1024));
    /// Empty polls in quick succession after which a polling thread serves its connections itself.
    lend_polls: u32 = 8, Number(1..=1 << 20);
    /// How long a polling thread may not poll before its shard takes the connections back; eight times as long if the thread has no processor, or if every check found it active and it defers no acknowledgements.
    lend_time: Duration = Duration::from_millis(1), millis(1, 1000);
    /// How long an empty poll may sleep until bytes arrive, in a thread that was preempted recently: where more threads poll than there are processors to run them. `0s` never sleeps.
    poll_sleep: Duration = Duration::from_micros(100), millis(0, 10);
    /// How long a thread that serves connections of programs which do not poll looks for the next request before it sleeps, while requests arrive faster than this; no longer if other threads need its processor. `0s` never polls.
    busy_poll: Duration = Duration::from_micros(50), millis(0, 10);
    /// Completion handlers that programs can register; `auto` is one per processor.
    handlers: Option<u16> = None, Or("auto", Number(1..=MAX_HANDLERS.into()));
    /// The maximum number of queue pairs.
    max_qps: u32 = 1 << 17, Number(1..=1 << 17);
    /// The maximum number of completion queues.
    max_cqs: u32 = 1 << 17, Number(1..=1 << 17);
    /// Completion queues that the device has from its initialization on, beside those that programs create (docs/operating.md).
    initial_cqs: u32 = 0, Number(0..=1024);
    /// The entries of each of them.
    initial_cq_entries: usize = 1024, Number(1..=1 << 22);
    /// The maximum number of shared receive queues.
    max_srqs: u32 = 1 << 17, Number(1..=1 << 17);
    /// The maximum number of shared send queues.
    max_ssqs: u32 = 1 << 17, Number(1..=1 << 17);
    /// The maximum number of protection domains.
    max_pds: u32 = 1 << 17, Number(2..=1 << 17);
    /// The maximum number of memory regions and windows together.
    max_regions: u32 = 1 << 20, Number(1..=1 << 20);
    /// The maximum number of pages, of 4 KiB or more, of all STags for registration by work request together.
    max_pages: u32 = 1 << 24, Number(0..=1 << 30);
    /// Device memory that C programs can allocate by `ibv_alloc_dm`, all together: `max_dm_size`.
    dm_size: usize = 16 << 20, Bytes(0..=1 << 40);
    /// What peers may access: `verbs` is windows, and regions with remote rights; `windows` is windows only, never a region by its own key (docs/memory.md). A protection domain may differ.
    remote_access: Policy = Policy::Verbs, Keyword(REMOTE_ACCESS);
    /// Handle `SIGSEGV` and `SIGBUS` in copies from and to registered memory that the program has unmapped, so that the request fails and not the process; other faults are passed to the handler that was installed before.
    catch_faults: bool = true, Switch;
    /// Let other programs of the same user see the adapter: `verbena why`, `top`, `metrics`, `pcap`, `trace`, `events` and `devinfo PID`; failures of queue pairs are kept for a day (docs/tools.md).
    monitor: bool = true, Switch;
    /// How long the first completion queue waits for a capture or trace of the adapter to begin; `verbena pcap -- PROGRAM` and `verbena trace -- PROGRAM` set it (docs/tools.md).
    capture_wait: Duration = Duration::ZERO, seconds(0, 60);
    /// Raise an event when the link of the adapter's addresses goes up or down.
    link_events: bool = true, Switch;
    /// Interrupt vectors granted to the adapter; `auto` is as many as it requests, fewer are shared, and with 0 it uses the one legacy line.
    vectors: Option<u16> = None, Or("auto", Number(0..=2048));
    /// How event queues and interrupt vectors are shared by duties and processors (docs/events.md).
    interrupt_arrangement: Arrangement = Arrangement::ProcessorQueuesProcessorVectors, Keyword(ARRANGEMENTS);
    /// How an event finds its interrupt vector: by duty and processor, by the addresses of its packet, or by its event queue (docs/events.md).
    interrupt_routing: Routing = Routing::Processor, Keyword(ROUTINGS);
    /// The key of the hash over the addresses of packets; `auto` is a random one.
    interrupt_hash_key: Option<HashKey> = None, Or("auto", HexKey);
    /// The redirection table: the low bits of the hash select one of these completion handlers. `auto` is all handlers in turn if `interrupt_routing` is hash or queue.
    interrupt_table: Option<Vec<u16>> = None, Or("auto", HandlerTable);
    /// The processors on which C programs are notified of completions, for one completion vector after the other and again from the first; with `auto` the thread that completes notifies.
    completion_vector_cpus: Option<Vec<RangeInclusive<u16>>> = None, Or("auto", ProcessorRanges);
    /// Bytes of an event queue entry.
    event_entry: EntryForm = EntryForm::Long, Keyword(ENTRY_FORMS);
    /// The memory of event queues: in one piece, or in separate pages of 4 KiB.
    event_queue: EventMemory = EventMemory::Contiguous, Keyword(EVENT_MEMORIES);
    /// Entries of an event queue at the start; a full queue is doubled.
    event_entries: usize = 512, Number(1..=MAX_EVENT_ENTRIES);
    /// How long notifications may be held back to be given together, unless a handler sets it: up to a time or a number of events, or by the rate of events.
    event_moderation: Moderation = Moderation::Off, ModerationForm;
    /// When event queue entries that were read are acknowledged, unless a handler sets it: `eager` at once, `lazy` when half of the queue is read or it is empty, while the queue is polled instead of armed.
    event_acknowledge: Acknowledge = Acknowledge::Eager, Keyword(ACKNOWLEDGES);
    /// The size of socket buffers; `auto` leaves it to the system.
    buffers: Option<usize> = None, Or("auto", Bytes(4096..=1 << 30));
    /// Let the system pace what is sent, where its congestion control does so (bbr); `auto` is off towards this host and on across hosts.
    pacing: Choice = Choice::Auto, Keyword(CHOICES);
    /// How long the startup of a connection may take.
    startup_timeout: Duration = Duration::from_secs(5), millis(10, 600_000);
    /// Connections in startup at once, on all ports; one more displaces the oldest of the source address that has the most (docs/connections.md).
    half_open: u32 = 512, Number(1..=65_535);
    /// Requests held for a queue pair that is not ready to receive yet.
    held_per_qp: u32 = 4, Number(0..=1024);
    /// Requests held on one port.
    held_per_port: u32 = 64, Number(0..=65_535);
    /// How long a request is held.
    held_timeout: Duration = Duration::from_secs(5), millis(10, 600_000);
    /// How long the passive side of an out-of-band connection waits for the peer before it connects itself.
    dial_delay: Duration = Duration::from_millis(200), millis(0, 60_000);
    /// The first interval before a refused connection attempt is repeated; it doubles.
    redial_min: Duration = Duration::from_millis(10), millis(1, 60_000);
    /// The longest interval before a refused connection attempt is repeated.
    redial_max: Duration = Duration::from_millis(200), millis(1, 60_000);
    /// How long the number of a destroyed queue pair is not reused.
    reuse_delay: Duration = Duration::from_secs(2), millis(0, 600_000);
    /// Refuse out-of-band peers with another address than the one that the program named; off for address translation.
    check_source: bool = true, Switch;
    /// A key that peers must share, however they connect; without one, every peer that reaches the port is trusted.
    key: Option<Key> = None, Or("none", Secret);
    /// A file of such keys, one per line, that only its owner can read: the first is used, all are accepted (docs/connections.md).
    key_file: Option<PathBuf> = None, Or("none", FileName);
    /// Encrypt all connections by TLS 1.3: `psk` with peers that have the same `key`, `cert` with peers that have a certificate of the same authority. Peers without TLS are refused then (docs/connections.md).
    tls: TlsMode = TlsMode::Off, Keyword(TLS_MODES);
    /// A PEM file with the adapter's certificate for `tls = cert`, and the certificates between it and the authority.
    tls_cert: Option<PathBuf> = None, Or("none", FileName);
    /// A PEM file with the private key of that certificate, that only its owner can read.
    tls_key: Option<PathBuf> = None, Or("none", FileName);
    /// A PEM file with the certificate of the authority: peers need one that it has signed, whatever names it has.
    tls_ca: Option<PathBuf> = None, Or("none", FileName);
    /// Silence after which a keep-alive probe is sent to a peer; `0s` sends none.
    keep_alive: Duration = Duration::from_secs(60), seconds(0, 32_767);
    /// The shortest silence of a peer with a response outstanding after which it counts as dead (docs/connections.md); the connection survives network outages of half as long.
    dead_after: Duration = Duration::from_secs(10), millis(100, 3_600_000);
    /// How long a peer on a responding host may neither read nor respond, as a stopped program does, before its connection ends; `0s` is without limit.
    stalled_after: Duration = Duration::from_secs(600), seconds(0, 86_400);
    /// How long a message of a peer without the extensions waits for a receive to be posted before the connection ends.
    receive_wait: Duration = Duration::from_secs(1), millis(0, 600_000);
    /// How long a peer may hold a receive of a shared receive queue, by an incomplete message or after READY, without progress before its connection ends.
    shared_receive_wait: Duration = Duration::from_secs(60), millis(100, 3_600_000);
    /// How long a channel of a shared send queue may block the others without progress before it fails, unless the program sets it.
    send_stall: Duration = Duration::from_secs(1), millis(10, 600_000);
    /// How long a peer's access waits for memory with a pending registration before it is refused.
    memory_wait: Duration = Duration::from_secs(5), millis(0, 5_000);
    /// How long after startup an empty RDMA Write is sent to a peer without the extensions that was sent data and has sent nothing: siw may have missed the first frame. `0s` sends none.
    nudge: Duration = Duration::from_millis(20), millis(0, 60_000);
    /// How long after startup the responder sends its queued data to an initiator without the extensions and without peer-to-peer mode that has sent nothing: RFC 5044 has the responder wait for the first frame, but on siw a client may wait for its server's. `0s` waits without limit.
    speak_first: Duration = Duration::from_millis(50), millis(0, 60_000);
    /// Faults that happen to the program, for tests of how it handles them (docs/tools.md): set by `verbena faults`.
    faults: Option<Script> = None, Or("none", Faults);
    /// The folder for reports about wrong use of verbs by C programs (docs/check.md): set by `verbena check`.
    check: Option<PathBuf> = None, Or("none", FileName);
    /// The longest wait for a closed connection to end.
    linger: Duration = Duration::from_secs(2), millis(0, 600_000);
    /// The least severe messages that are logged.
    log: Log = Log::Warn, Keyword(LOGS);
}

impl Settings {
    /// Settings that contradict each other.
    pub(super) fn contradictions(&self) -> Vec<ConfigError> {
        let mut found = Vec::new();
        if self.redial_min > self.redial_max {
            let most = millis(0, 0).show(&self.redial_max);
            found.push(ConfigError::contradiction(
                "redial_min",
                millis(0, 0).show(&self.redial_min),
                format!("expected at most redial_max, which is {most}"),
            ));
        }
        if self.held_per_qp > self.held_per_port {
            found.push(ConfigError::contradiction(
                "held_per_qp",
                self.held_per_qp.to_string(),
                format!(
                    "expected at most held_per_port, which is {}",
                    self.held_per_port
                ),
            ));
        }
        if self.ports.contains(&self.multicast_port) {
            found.push(ConfigError::contradiction(
                "multicast_port",
                self.multicast_port.to_string(),
                format!(
                    "expected a port outside of ports, which is {}",
                    Ports.show(&self.ports)
                ),
            ));
        }
        if let (Some(_), Some(file)) = (&self.key, &self.key_file) {
            found.push(ConfigError::contradiction(
                "key_file",
                FileName.show(file),
                "expected either key or key_file".to_owned(),
            ));
        }
        if (self.key.is_some() || self.key_file.is_some()) && !self.extensions {
            found.push(ConfigError::contradiction(
                "extensions",
                Switch.show(&self.extensions),
                "expected on, since they carry the proof of key and key_file".to_owned(),
            ));
        }
        if let Some(handlers) = self.handlers
            && !self.has_vectors_for(handlers)
        {
            let most = self.max_handlers();
            found.push(ConfigError::contradiction(
                "handlers",
                handlers.to_string(),
                format!(
                    "expected at most {most} with interrupt_arrangement = {}",
                    Keyword(ARRANGEMENTS).show(&self.interrupt_arrangement)
                ),
            ));
        }
        found.extend(self.table_problem());
        found.extend(self.tls_problem());
        found.extend(self.profile_problem());
        found
    }
}

impl Settings {
    /// Whether the arrangement has event queues and vectors for this number of handlers.
    fn has_vectors_for(&self, handlers: u16) -> bool {
        let (arrangement, columns) = (self.interrupt_arrangement, columns(handlers));
        arrangement.queues(columns) <= MAX_QUEUES && arrangement.vectors(columns) <= MAX_VECTORS
    }

    /// The number of handlers that the arrangement has event queues and vectors for.
    pub(super) fn max_handlers(&self) -> u16 {
        let mut all = (1..=MAX_HANDLERS).rev();
        all.find(|handlers| self.has_vectors_for(*handlers))
            .unwrap_or(1)
    }
}

impl Settings {
    /// A redirection table that names handlers which cannot exist.
    fn table_problem(&self) -> Option<ConfigError> {
        let table = self.interrupt_table.as_ref()?;
        let handlers = self.handlers();
        let beyond = table.iter().any(|handler| *handler >= handlers);
        beyond.then(|| {
            ConfigError::contradiction(
                "interrupt_table",
                HandlerTable.show(table),
                format!("expected numbers below handlers, which is {handlers}"),
            )
        })
    }
}

impl Settings {
    /// Settings that `tls` needs and that are missing.
    fn tls_problem(&self) -> Option<ConfigError> {
        let needs = match self.tls {
            TlsMode::Off => None,
            TlsMode::Psk => {
                let none = self.key.is_none() && self.key_file.is_none();
                none.then_some("key or key_file")
            }
            TlsMode::Cert => {
                let files = [&self.tls_cert, &self.tls_key, &self.tls_ca];
                let missing = files.iter().any(|file| file.is_none());
                missing.then_some("tls_cert, tls_key and tls_ca")
            }
        };
        let shown = Keyword(TLS_MODES).show(&self.tls);
        let problem =
            |needs| ConfigError::contradiction("tls", shown, format!("expected {needs} with it"));
        needs.map(problem)
    }
}

/// The table of docs/configuration.md.
pub fn table() -> String {
    let defaults = Settings::default();
    let mut page = String::from("| key | default | takes | meaning |\n| --- | --- | --- | --- |\n");
    for key in KEYS {
        let default = (key.show)(&defaults);
        let default = if default.is_empty() {
            "nothing".to_owned()
        } else {
            format!("`{default}`")
        };
        let row = [
            format!("`{}`", key.name),
            default,
            (key.wants)(),
            key.doc.trim().to_owned(),
        ];
        page.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    page
}
