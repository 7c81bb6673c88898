//! Text forms of values: numbers, sizes, times, switches, words and lists.
//! What `show` prints `read` accepts (except secrets); `wants` describes the accepted texts. A time needs a unit unless it is 0.

use core::net::IpAddr;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::path::PathBuf;

use verbena_events::moderation::{Hold, MAX_DELAY, Moderation};
use verbena_events::steering::MAX_REDIRECTIONS;
use verbena_events::toeplitz::{KEY_LEN, Key as HashKey};
use verbena_wire::mpa::enhanced::RtrKinds;

use super::device::Device;
use super::key::{Key, MAX_KEY, MIN_KEY};
use super::networks::Networks;
use super::peers::{Network, Peers};
use super::port::PortSetting;
use super::settings::PROFILES;
use super::units::{UNITS, read_time, scaled, time, times, unscaled};
use crate::faults::Script;
use crate::notify::handler::MAX_HANDLERS;

/// The text form of a type.
pub(super) trait Form<T> {
    fn read(&self, text: &str) -> Option<T>;
    fn show(&self, value: &T) -> String;
    fn wants(&self) -> String;
}

/// A whole number between bounds.
pub(super) struct Number(pub(super) RangeInclusive<u64>);

impl<T: TryFrom<u64> + Copy + TryInto<u64>> Form<T> for Number {
    fn read(&self, text: &str) -> Option<T> {
        let n: u64 = text.parse().ok()?;
        self.0.contains(&n).then(|| T::try_from(n).ok())?
    }

    fn show(&self, value: &T) -> String {
        wide(*value).to_string()
    }

    fn wants(&self) -> String {
        format!("a number from {} to {}", self.0.start(), self.0.end())
    }
}

fn wide<T: TryInto<u64>>(value: T) -> u64 {
    value.try_into().unwrap_or(u64::MAX)
}

/// Faults for tests of programs.
pub(super) struct Faults;

impl Form<Script> for Faults {
    fn read(&self, text: &str) -> Option<Script> {
        text.parse().ok()
    }

    fn show(&self, value: &Script) -> String {
        value.to_string()
    }

    fn wants(&self) -> String {
        "rules of `verbena faults`".to_owned()
    }
}

/// The name of a device, as given to programs on their command lines.
pub(super) struct Label;

impl Form<String> for Label {
    fn read(&self, text: &str) -> Option<String> {
        let fits = (1..64).contains(&text.len());
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        (fits && text.chars().all(plain)).then(|| text.to_owned())
    }

    fn show(&self, value: &String) -> String {
        value.clone()
    }

    fn wants(&self) -> String {
        "1 to 63 letters, digits, dots, dashes and underscores".to_owned()
    }
}

/// A number of bytes, with K and M for 2¹⁰ and 2²⁰.
pub(super) struct Bytes(pub(super) RangeInclusive<u64>);

impl<T: TryFrom<u64> + Copy + TryInto<u64>> Form<T> for Bytes {
    fn read(&self, text: &str) -> Option<T> {
        let n = scaled(text, &[("K", 1 << 10), ("M", 1 << 20), ("", 1)])?;
        self.0.contains(&n).then(|| T::try_from(n).ok())?
    }

    fn show(&self, value: &T) -> String {
        bytes(wide(*value))
    }

    fn wants(&self) -> String {
        let (least, most) = (bytes(*self.0.start()), bytes(*self.0.end()));
        format!("a size from {least} to {most} bytes, such as 4096 or 256K")
    }
}

fn bytes(n: u64) -> String {
    unscaled(n, &[("M", 1 << 20), ("K", 1 << 10)], "")
}

/// A time with its unit, between bounds. Zero needs no unit.
pub(super) struct DurationRange(pub(super) RangeInclusive<Duration>);

impl Form<Duration> for DurationRange {
    fn read(&self, text: &str) -> Option<Duration> {
        read_time(text, self.0.clone()).ok()
    }

    fn show(&self, value: &Duration) -> String {
        time(*value)
    }

    fn wants(&self) -> String {
        times(&self.0)
    }
}

/// On or off.
pub(super) struct Switch;

impl Form<bool> for Switch {
    fn read(&self, text: &str) -> Option<bool> {
        match text {
            "on" | "true" | "yes" | "1" => Some(true),
            "off" | "false" | "no" | "0" => Some(false),
            _ => None,
        }
    }

    fn show(&self, value: &bool) -> String {
        if *value { "on" } else { "off" }.to_owned()
    }

    fn wants(&self) -> String {
        "on or off".to_owned()
    }
}

/// One of a few words.
pub(super) struct Keyword<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Form<T> for Keyword<T> {
    fn read(&self, text: &str) -> Option<T> {
        let found = self.0.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value)
    }

    fn show(&self, value: &T) -> String {
        let found = self.0.iter().find(|(_, known)| known == value);
        found.map_or("?", |(word, _)| word).to_owned()
    }

    fn wants(&self) -> String {
        let words: Vec<&str> = self.0.iter().map(|(word, _)| *word).collect();
        match words.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => words.concat(),
        }
    }
}

/// A value, or a word for none.
pub(super) struct Or<F>(pub(super) &'static str, pub(super) F);

impl<T, F: Form<T>> Form<Option<T>> for Or<F> {
    fn read(&self, text: &str) -> Option<Option<T>> {
        if text == self.0 {
            return Some(None);
        }
        self.1.read(text).map(Some)
    }

    fn show(&self, value: &Option<T>) -> String {
        value.as_ref().map_or(self.0.to_owned(), |v| self.1.show(v))
    }

    fn wants(&self) -> String {
        format!("{} or {}", self.0, self.1.wants())
    }
}

/// First and last port.
pub(super) struct Ports;

impl Form<RangeInclusive<u16>> for Ports {
    fn read(&self, text: &str) -> Option<RangeInclusive<u16>> {
        let (first, last) = text.split_once('-')?;
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // The port is the upper part of a queue pair number; numbers below 1024 << 8 are not connected by number.
        (1024 <= first && first <= last).then_some(first..=last)
    }

    fn show(&self, value: &RangeInclusive<u16>) -> String {
        format!("{}-{}", value.start(), value.end())
    }

    fn wants(&self) -> String {
        "the first and the last port, from 1024 on, such as 20000-29999".to_owned()
    }
}

/// Ready-to-receive messages.
pub(super) struct Rtr;

impl Form<RtrKinds> for Rtr {
    fn read(&self, text: &str) -> Option<RtrKinds> {
        let mut kinds = RtrKinds {
            send: false,
            write: false,
            read: false,
        };
        for word in text.split(',').filter(|_| text != "none") {
            match word.trim() {
                "send" => kinds.send = true,
                "write" => kinds.write = true,
                "read" => kinds.read = true,
                _ => return None,
            }
        }
        Some(kinds)
    }

    fn show(&self, value: &RtrKinds) -> String {
        let all = [
            (value.send, "send"),
            (value.write, "write"),
            (value.read, "read"),
        ];
        let words: Vec<&str> = all.iter().filter(|(on, _)| *on).map(|(_, w)| *w).collect();
        if words.is_empty() {
            return "none".to_owned();
        }
        words.join(",")
    }

    fn wants(&self) -> String {
        "none, or some of send, write and read, such as write,read".to_owned()
    }
}

/// The adapter's addresses.
pub(super) struct Devices;

impl Form<Device> for Devices {
    fn read(&self, text: &str) -> Option<Device> {
        if text == "auto" {
            return Some(Device::Auto);
        }
        let addresses: Option<Vec<IpAddr>> =
            text.split(',').map(|ip| ip.trim().parse().ok()).collect();
        if let Some(addresses) = addresses {
            return Some(Device::Addresses(addresses));
        }
        // Names that Linux accepts for interfaces, without those that may be a mistyped address.
        let name = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        let letters = text.starts_with(|c: char| c.is_ascii_alphabetic());
        let sane = letters && text.len() <= 15 && text.chars().all(name);
        sane.then(|| Device::Interface(text.to_owned()))
    }

    fn show(&self, value: &Device) -> String {
        match value {
            Device::Auto => "auto".to_owned(),
            Device::Interface(name) => name.clone(),
            Device::Addresses(addresses) => {
                let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                all.join(",")
            }
        }
    }

    fn wants(&self) -> String {
        "auto, an interface such as eth0, or addresses with commas between them".to_owned()
    }
}

/// The moderation of events: a time, after which a signal is given at the latest, and a number of events, after which it is given at once.
pub(super) struct ModerationForm;

impl Form<Moderation> for ModerationForm {
    fn read(&self, text: &str) -> Option<Moderation> {
        let (time, count) = match text.split_once(',') {
            _ if text == "off" => return Some(Moderation::Off),
            _ if text == "adaptive" => return Some(Moderation::Adaptive),
            None => (text, u32::MAX),
            Some((time, count)) => (time.trim_end(), count.trim_start().parse().ok()?),
        };
        let delay = Duration::from_nanos(scaled(time, UNITS)?);
        let hold = Hold::new(count, delay).ok()?;
        (hold != Hold::OFF).then_some(Moderation::Fixed(hold))
    }

    fn show(&self, value: &Moderation) -> String {
        match value {
            Moderation::Off => "off".to_owned(),
            Moderation::Adaptive => "adaptive".to_owned(),
            Moderation::Fixed(hold) if hold.count == u32::MAX => time(hold.delay),
            Moderation::Fixed(hold) => format!("{},{}", time(hold.delay), hold.count),
        }
    }

    fn wants(&self) -> String {
        let most = time(MAX_DELAY);
        format!(
            "off, adaptive, or a time up to {most}, with or without a number of events from 2 on, such as 50us or 50us,16"
        )
    }
}

/// The key of the hash over the addresses of packets.
pub(super) struct HexKey;

impl Form<HashKey> for HexKey {
    fn read(&self, text: &str) -> Option<HashKey> {
        let digits = text.chars().filter(|c| *c != ':');
        let digits = digits.map(|c| c.to_digit(16).map(|digit| digit as u8));
        let digits: Vec<u8> = digits.collect::<Option<_>>()?;
        if digits.len() != 2 * KEY_LEN {
            return None;
        }
        let pairs = digits.chunks_exact(2);
        let bytes: Vec<u8> = pairs.map(|pair| pair[0] << 4 | pair[1]).collect();
        bytes.try_into().ok().map(HashKey)
    }

    fn show(&self, value: &HashKey) -> String {
        value.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn wants(&self) -> String {
        format!("{KEY_LEN} bytes in hexadecimal, with or without colons between them")
    }
}

/// The completion handlers of a redirection table.
pub(super) struct HandlerTable;

impl Form<Vec<u16>> for HandlerTable {
    fn read(&self, text: &str) -> Option<Vec<u16>> {
        let one = |entry: &str| entry.trim().parse().ok().filter(|n| *n < MAX_HANDLERS);
        let table: Vec<u16> = text.split(',').map(one).collect::<Option<_>>()?;
        let fits = table.len().is_power_of_two() && table.len() <= MAX_REDIRECTIONS;
        fits.then_some(table)
    }

    fn show(&self, value: &Vec<u16>) -> String {
        let all: Vec<String> = value.iter().map(ToString::to_string).collect();
        all.join(",")
    }

    fn wants(&self) -> String {
        format!(
            "numbers of handlers with commas between them, a power of two up to {MAX_REDIRECTIONS} of them, such as 0,1,0,2"
        )
    }
}

/// Processors that are available in a Linux CPU set.
const MAX_PROCESSORS: u16 = 1024;

/// A processor or a range of them for each of several completion vectors.
pub(super) struct ProcessorRanges;

impl Form<Vec<RangeInclusive<u16>>> for ProcessorRanges {
    fn read(&self, text: &str) -> Option<Vec<RangeInclusive<u16>>> {
        let one = |entry: &str| {
            let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last && last < MAX_PROCESSORS).then_some(first..=last)
        };
        text.split(',').map(one).collect()
    }

    fn show(&self, value: &Vec<RangeInclusive<u16>>) -> String {
        let one = |range: &RangeInclusive<u16>| match (range.start(), range.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        };
        let all: Vec<String> = value.iter().map(one).collect();
        all.join(",")
    }

    fn wants(&self) -> String {
        "processors and ranges of them with commas between them, such as 0,1,2-3".to_owned()
    }
}

/// Networks and profiles.
pub(super) struct PeerList;

impl Form<Peers> for PeerList {
    fn read(&self, text: &str) -> Option<Peers> {
        let entries = text.split(',').map(str::trim).filter(|e| !e.is_empty());
        let entries = entries.map(|entry| {
            let (network, profile) = entry.split_once('=')?;
            let profile = Keyword(PROFILES).read(profile.trim())?;
            Some((Network::read(network.trim())?, profile))
        });
        entries.collect::<Option<Vec<_>>>().map(Peers)
    }

    fn show(&self, value: &Peers) -> String {
        let entry =
            |(network, profile): &_| format!("{network}={}", Keyword(PROFILES).show(profile));
        let all: Vec<String> = value.0.iter().map(entry).collect();
        all.join(",")
    }

    fn wants(&self) -> String {
        let profiles = Keyword(PROFILES).wants();
        format!("a list such as 192.0.2.7=siw,2001:db8::/32=standard with {profiles}")
    }
}

/// Networks.
pub(super) struct NetworkList;

impl Form<Networks> for NetworkList {
    fn read(&self, text: &str) -> Option<Networks> {
        let entries = text.split(',').map(str::trim).filter(|e| !e.is_empty());
        entries
            .map(Network::read)
            .collect::<Option<_>>()
            .map(Networks)
    }

    fn show(&self, value: &Networks) -> String {
        let all: Vec<String> = value.0.iter().map(ToString::to_string).collect();
        all.join(",")
    }

    fn wants(&self) -> String {
        "a list of addresses and networks such as 192.0.2.7,198.51.100.0/24,2001:db8::/32"
            .to_owned()
    }
}

/// A port of the adapter's own.
pub(super) struct PortForm;

impl Form<PortSetting> for PortForm {
    fn read(&self, text: &str) -> Option<PortSetting> {
        PortSetting::read(text)
    }

    fn show(&self, value: &PortSetting) -> String {
        value.to_string()
    }

    fn wants(&self) -> String {
        "`tap:NAME` or `cable:PATH`, then addresses with prefixes, and at will `gateway=ADDRESS`, `mtu=BYTES` and `host=TAP`, all with commas between them, such as tap:rdma0,10.1.0.2/24,gateway=10.1.0.1".to_owned()
    }
}

/// The name of a file.
pub(super) struct FileName;

impl Form<PathBuf> for FileName {
    fn read(&self, text: &str) -> Option<PathBuf> {
        (!text.is_empty()).then(|| PathBuf::from(text))
    }

    fn show(&self, value: &PathBuf) -> String {
        value.display().to_string()
    }

    fn wants(&self) -> String {
        "the name of a file".to_owned()
    }
}

/// A secret.
pub(super) struct Secret;

impl Form<Key> for Secret {
    fn read(&self, text: &str) -> Option<Key> {
        Key::new(text.as_bytes())
    }

    fn show(&self, _: &Key) -> String {
        "(hidden)".to_owned()
    }

    fn wants(&self) -> String {
        format!("a text of {MIN_KEY} to {MAX_KEY} bytes")
    }
}
