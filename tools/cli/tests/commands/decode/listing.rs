//! The listings beside the captures, made by an independent decoder. They contain each connection's startup frames and FPDUs, and are parsed
//! without any code of ours that decodes.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use super::support::fixture;

/// One TCP connection of a listing.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Initiator and responder, as `address:port`.
    pub(crate) ends: [String; 2],
    /// Lines towards the responder, and towards the initiator.
    pub(crate) lines: [Vec<Line>; 2],
    /// Which sides sent FIN.
    pub(crate) fins: [bool; 2],
}

/// A startup frame or an FPDU.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// `MPA`, `SEND`, `READ_REQ`, and so on.
    pub(crate) name: String,
    /// `T` or `U`, with `L` on a last segment; empty for a startup frame.
    pub(crate) class: String,
    fields: HashMap<String, String>,
}

impl Line {
    /// A field's text.
    pub(crate) fn field(&self, name: &str) -> &str {
        let value = self.fields.get(name);
        value.unwrap_or_else(|| panic!("{name} in {self:?}"))
    }

    /// A field's text, where it may be missing.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// A decimal field.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.field(name).parse().expect("decimal")
    }

    pub(crate) fn is_startup(&self) -> bool {
        self.name == "MPA"
    }

    pub(crate) fn is_last(&self) -> bool {
        self.class.ends_with('L')
    }

    /// The name of the kind in our records.
    pub(crate) fn kind(&self) -> &'static str {
        match self.name.as_str() {
            "SEND" => "Send",
            "SEND_INV" => "SendInv",
            "SEND_SE" => "SendSe",
            "SEND_SE_INV" => "SendSeInv",
            "WRITE" => "Write",
            "READ_REQ" => "ReadRequest",
            "READ_RESP" => "ReadResponse",
            "TERMINATE" => "Terminate",
            other => panic!("no name for {other}"),
        }
    }
}

/// Parses the listing of a capture.
pub(crate) fn listing(name: &str) -> Vec<Connection> {
    let text = std::fs::read_to_string(fixture(&format!("{name}.fpdu.txt"))).expect("listing");
    let mut connections = Vec::new();
    for line in text.lines().filter(|l| !l.starts_with("===")) {
        if let Some(head) = line.strip_prefix("--- conn ") {
            let (_, ends) = head.split_once(": ").expect("ends");
            let (from, to) = ends.split_once(" > ").expect("arrow");
            connections.push(Connection {
                ends: [address(from), address(to)],
                lines: [Vec::new(), Vec::new()],
                fins: [false; 2],
            });
            continue;
        }
        let connection: &mut Connection = connections.last_mut().expect("a connection");
        let (arrow, rest) = line.split_once(' ').expect("arrow");
        let dir = usize::from(arrow == "<");
        if rest == "FIN" {
            connection.fins[dir] = true;
        } else {
            connection.lines[dir].push(parse(rest));
        }
    }
    connections
}

/// The listing has IPv6 addresses in full; our records have them short and in brackets.
fn address(text: &str) -> String {
    let (host, port) = text.trim().rsplit_once(':').expect("port");
    let host: IpAddr = host.parse().expect("address");
    SocketAddr::new(host, port.parse().expect("port")).to_string()
}

fn parse(rest: &str) -> Line {
    let mut line = Line {
        name: String::new(),
        class: String::new(),
        fields: HashMap::new(),
    };
    // "MPA 'MPA ID Req Frame' M=0 …" or "#1 ulpdu=34 SEND UL …".
    let rest = match rest.strip_prefix("MPA '") {
        Some(startup) => {
            line.name = "MPA".into();
            startup.split_once("' ").expect("key").1
        }
        None => rest.split_once(' ').expect("number").1,
    };
    for word in rest.split(' ') {
        match word.split_once('=') {
            Some((name, value)) => {
                line.fields.insert(name.into(), value.into());
            }
            None if line.name.is_empty() => line.name = word.into(),
            None if line.class.is_empty() => line.class = word.into(),
            // The end of "[zero(crc off)]".
            None => {}
        }
    }
    line
}
