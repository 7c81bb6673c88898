//! The one list of everything that can be set: name, type, default, form and meaning.
//! It promises that the fields, the reading, the describing and the documentation are all made from it.
//! It refuses settings that contradict each other.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::path::PathBuf;

use verbena_nic::Personality;
use verbena_nic::profile::{LogicalDevice, Rule};
use verbena_wire::mpa::enhanced::RtrKinds;
use verbena_wire::mpa::startup::Revision;

use super::device::Device;
use super::form::{
    Bytes, Devices, DurationRange, FileName, Form, Keyword, Label, NetworkList, Number, Or,
    PeerList, Ports, Rtr, Secret, Switch,
};
use super::key::Key;
use super::keywords::{Choice, Fpdu, Log, Profile, TlsMode};
use super::networks::Networks;
use super::peers::Peers;
use super::presents::{Owners, Presents};
use super::problem::ConfigError;

/// What the list says about one setting.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) doc: &'static str,
    pub(super) secret: bool,
    /// Reads a text into the field; false, and nothing changed, if it is none of its values.
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

/// The largest read depth that startup can carry (RFC 6581 §9.1), without the number that leaves it open.
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
    /// The kind of adapter that it presents itself as: `roce`, as most programs expect, or `iwarp`.
    personality: Personality = Personality::Roce, Keyword(PERSONALITIES);
    /// The name of the device, by which programs choose it.
    name: String = "verbena0".to_owned(), Label;
    /// Virtual functions beside the physical one: C programs see them as devices of their own, called `name`, `v` and a number (docs/functions.md).
    functions: u16 = 0, Number(0..=14);
    /// Logical devices as which the adapter appears, with the services of each; `auto` is `name` and one more for each of `functions`, each with all implemented services: `rdma+iscsi`.
    presents: Option<Vec<LogicalDevice>> = None, Or("auto", Presents);
    /// Which device receives packets, by address, port or connection; the narrowest rule decides, and all other packets go to the first device.
    owners: Vec<Rule> = Vec::new(), Owners;
    /// Its addresses; `auto` is the first one that others can reach, else loopback.
    device: Device = Device::Auto, Devices;
    /// Source addresses that may connect and send datagrams; empty allows all. It holds for every kind of listener.
    allow: Networks = Networks::default(), NetworkList;
    /// Source addresses that may not, even if `allow` names them.
    deny: Networks = Networks::default(), NetworkList;
    /// Ports of out-of-band connections and datagrams, below the ephemeral range.
    ports: RangeInclusive<u16> = 20_000..=29_999, Ports;
    /// Added to the port of every rdma_cm listen and connect, where the plain port belongs to an ordinary server.
    cm_port_offset: u16 = 0, Number(0..=65_534);
    /// The UDP port of multicast datagrams, the same in the whole network.
    multicast_port: u16 = 19_999, Number(1024..=65_535);
    /// Checksums; `auto` is off towards this host and on across hosts. If either side wants them, both carry them.
    crc: Choice = Choice::Auto, Keyword(CHOICES);
    /// Frames that fit a TCP segment, or long ones; `auto` is large towards Verbena and mss towards others.
    fpdu: Fpdu = Fpdu::Auto, Keyword(FPDUS);
    /// Ask peers for MPA markers.
    markers: bool = false, Switch;
    /// The revision of our MPA Requests.
    mpa_revision: Revision = Revision::Two, Keyword(REVISIONS);
    /// Ready-to-receive messages that we offer and take.
    rtr: RtrKinds = WRITE_OR_READ, Rtr;
    /// Inbound reads and atomics served at once, where the program does not say.
    ird: u16 = 128, Number(0..=MAX_DEPTH);
    /// Outbound reads and atomics asked for, where the program does not say.
    ord: u16 = 128, Number(0..=MAX_DEPTH);
    /// Offer Verbena's extensions, and agree to them (docs/extensions.md).
    extensions: bool = true, Switch;
    /// Immediate data and atomics of RFC 7306 towards peers without the extensions; `auto` is off, as siw refuses them.
    rfc7306: Choice = Choice::Auto, Keyword(CHOICES);
    /// The implementation that peers are expected to be, unless `peers` lists them.
    profile: Profile = Profile::Verbena, Keyword(PROFILES);
    /// Networks whose peers have another profile; the narrowest decides.
    peers: Peers = Peers::default(), PeerList;
    /// The shortest run of payload that goes straight between socket and memory.
    direct_min: u32 = 16 << 10, Bytes(1..=1 << 30);
    /// Bytes read beyond such a run, in the same system call.
    lookahead: usize = 128, Bytes(0..=64 << 10);
    /// Bytes framed ahead of the socket.
    batch: usize = 256 << 10, Bytes(4096..=64 << 20);
    /// Requests after which an acknowledgement leaves at the latest.
    ack_requests: u32 = 64, Number(1..=1 << 20);
    /// Bytes after which an acknowledgement leaves at the latest.
    ack_bytes: u64 = 256 << 10, Bytes(1..=1 << 30);
    /// How long a polling thread may put off an acknowledgement: until it posts or polls again, and if it does neither, about `lend_time`; the next ones leave at once then. `0s` puts nothing off.
    ack_delay: Duration = Duration::from_micros(100), millis(0, 1000);
    /// Threads that serve connections; `auto` is one per processor.
    shards: Option<u16> = None, Or("auto", Number(1..=1024));
    /// Empty polls in quick succession after which a polling thread serves its connections itself.
    lend_polls: u32 = 8, Number(1..=1 << 20);
    /// How long a polling thread may go without polling before its connections are taken back; eight times as long if it has no processor, or if it has polled without a gap so far and puts no acknowledgements off.
    lend_time: Duration = Duration::from_millis(1), millis(1, 1000);
    /// How long an empty poll may sleep for bytes to arrive, in a thread that was preempted a moment ago: on processors with more threads that poll than they can run at once. `0s` never sleeps.
    poll_sleep: Duration = Duration::from_micros(100), millis(0, 10);
    /// Completion handlers that programs can register; `auto` is one per processor.
    handlers: Option<u16> = None, Or("auto", Number(1..=crate::handler::MAX_HANDLERS.into()));
    /// Queue pairs that there can be.
    max_qps: u32 = 1 << 17, Number(1..=1 << 17);
    /// Completion queues that there can be.
    max_cqs: u32 = 1 << 17, Number(1..=1 << 17);
    /// Shared receive queues that there can be.
    max_srqs: u32 = 1 << 17, Number(1..=1 << 17);
    /// Shared send queues that there can be.
    max_ssqs: u32 = 1 << 17, Number(1..=1 << 17);
    /// Protection domains that there can be.
    max_pds: u32 = 1 << 17, Number(2..=1 << 17);
    /// Memory regions and windows that there can be, together.
    max_regions: u32 = 1 << 20, Number(1..=1 << 20);
    /// Pages, of 4 KiB or more, that all STags for registration by work request have room for together.
    max_pages: u32 = 1 << 24, Number(0..=1 << 30);
    /// Handle `SIGSEGV` and `SIGBUS` in copies from and to registered memory that the program has unmapped, so that the request fails and not the process; other faults go to the handler that was there before.
    catch_faults: bool = true, Switch;
    /// Let `verbena events` of the same user receive the adapter's events.
    monitor: bool = true, Switch;
    /// Interrupt vectors granted to the adapter; `auto` is as many as it asks for, fewer are shared, and with 0 it has the one legacy line.
    vectors: Option<u16> = None, Or("auto", Number(0..=2048));
    /// Socket buffers; `auto` leaves them to the system.
    buffers: Option<usize> = None, Or("auto", Bytes(4096..=1 << 30));
    /// Let the system space out what is sent, where its congestion control does so (bbr); `auto` is off towards this host and on across hosts.
    pacing: Choice = Choice::Auto, Keyword(CHOICES);
    /// How long the startup of a connection may take.
    startup_timeout: Duration = Duration::from_secs(5), millis(10, 600_000);
    /// Connections in startup at once, on all ports; beyond it, the oldest one of the source address that has the most is closed (docs/connections.md).
    half_open: u32 = 512, Number(1..=65_535);
    /// Requests held for a queue pair that is not ready to receive yet.
    held_per_qp: u32 = 4, Number(0..=1024);
    /// Requests held on one port.
    held_per_port: u32 = 64, Number(0..=65_535);
    /// How long a request is held.
    held_timeout: Duration = Duration::from_secs(5), millis(10, 600_000);
    /// How long the side that should be dialled waits before it dials itself.
    dial_delay: Duration = Duration::from_millis(200), millis(0, 60_000);
    /// The first wait before a refused dial is repeated; it doubles.
    redial_min: Duration = Duration::from_millis(10), millis(1, 60_000);
    /// The longest wait before a refused dial is repeated.
    redial_max: Duration = Duration::from_millis(200), millis(1, 60_000);
    /// How long a queue pair's number is not given out again.
    reuse_delay: Duration = Duration::from_secs(2), millis(0, 600_000);
    /// Refuse out-of-band peers whose address is not the one the program named; off for address translation.
    check_source: bool = true, Switch;
    /// A key that peers must share, however they connect; without one, every peer that reaches the port is trusted.
    key: Option<Key> = None, Or("none", Secret);
    /// A file of such keys, one per line, that only its owner can read: the first is used, all are accepted (docs/connections.md).
    key_file: Option<PathBuf> = None, Or("none", FileName);
    /// Encrypt all connections by TLS 1.3: `psk` with peers that have the same `key`, `cert` with peers that have a certificate of the same authority. Peers without TLS are refused then (docs/connections.md).
    tls: TlsMode = TlsMode::Off, Keyword(TLS_MODES);
    /// A PEM file with our certificate for `tls = cert`, and the certificates between it and the authority.
    tls_cert: Option<PathBuf> = None, Or("none", FileName);
    /// A PEM file with the private key of that certificate, that only its owner can read.
    tls_key: Option<PathBuf> = None, Or("none", FileName);
    /// A PEM file with the certificate of the authority: peers need one that it has signed, whatever names it has.
    tls_ca: Option<PathBuf> = None, Or("none", FileName);
    /// Time without bytes from the peer after which a keep-alive probe is sent; 0s sends none.
    keep_alive: Duration = Duration::from_secs(60), seconds(0, 32_767);
    /// The least silence, with an answer owed, after which a peer counts as dead (docs/connections.md); pauses of the network of half as long are survived.
    dead_after: Duration = Duration::from_secs(10), millis(100, 3_600_000);
    /// How long a peer whose machine answers may neither read nor answer, as a stopped program does, before its connection ends; `0s` is for ever.
    stalled_after: Duration = Duration::from_secs(600), seconds(0, 86_400);
    /// How long a peer without the extensions is kept waiting for a missing receive before its connection ends.
    receive_wait: Duration = Duration::from_secs(1), millis(0, 600_000);
    /// How long a peer may hold a receive of a shared receive queue, by half a message or after READY, without going on before its connection ends.
    shared_receive_wait: Duration = Duration::from_secs(60), millis(100, 3_600_000);
    /// How long a channel of a shared send queue may hold up the others without moving before it fails, where the program does not say.
    send_stall: Duration = Duration::from_secs(1), millis(10, 600_000);
    /// How long a peer's access waits for memory whose registration is not done before it is refused.
    memory_wait: Duration = Duration::from_secs(5), millis(0, 5_000);
    /// How long after its startup a peer without the extensions, which was sent something and has sent nothing, gets one empty RDMA Write: siw may have missed the first frame. `0s` sends none.
    nudge: Duration = Duration::from_millis(20), millis(0, 60_000);
    /// How long after its startup an initiator without the extensions and without peer-to-peer mode, which has sent nothing, is sent what waits for it: RFC 5044 has the responder wait for the first frame, but on siw a client may wait for its server's. `0s` waits for ever.
    speak_first: Duration = Duration::from_millis(50), millis(0, 60_000);
    /// How long the end of a closed connection is waited for.
    linger: Duration = Duration::from_secs(2), millis(0, 600_000);
    /// The level from which messages are logged.
    log: Log = Log::Warn, Keyword(LOGS);
}

impl Settings {
    /// What cannot be true together.
    pub(super) fn contradictions(&self) -> Vec<ConfigError> {
        let mut found = Vec::new();
        if self.redial_min > self.redial_max {
            let most = millis(0, 0).show(&self.redial_max);
            found.push(ConfigError::contradiction(
                "redial_min",
                millis(0, 0).show(&self.redial_min),
                format!("wanted is at most redial_max, which is {most}"),
            ));
        }
        if self.held_per_qp > self.held_per_port {
            found.push(ConfigError::contradiction(
                "held_per_qp",
                self.held_per_qp.to_string(),
                format!(
                    "wanted is at most held_per_port, which is {}",
                    self.held_per_port
                ),
            ));
        }
        if self.ports.contains(&self.multicast_port) {
            found.push(ConfigError::contradiction(
                "multicast_port",
                self.multicast_port.to_string(),
                format!(
                    "wanted is a port outside of ports, which is {}",
                    Ports.show(&self.ports)
                ),
            ));
        }
        if let (Some(_), Some(file)) = (&self.key, &self.key_file) {
            found.push(ConfigError::contradiction(
                "key_file",
                FileName.show(file),
                "wanted is either key or key_file".to_owned(),
            ));
        }
        if (self.key.is_some() || self.key_file.is_some()) && !self.extensions {
            found.push(ConfigError::contradiction(
                "extensions",
                Switch.show(&self.extensions),
                "wanted is on, since they carry the proof of key and key_file".to_owned(),
            ));
        }
        found.extend(self.tls_problem());
        found.extend(self.profile_problem());
        found
    }
}

impl Settings {
    /// What `tls` needs and does not have.
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
            |needs| ConfigError::contradiction("tls", shown, format!("wanted is {needs} with it"));
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
