//! The address of a disk: `iscsi://user%password@host:port/iqn/lun?options`, or `iser://` for iSER. The displayed form parses again and
//! contains neither credentials nor options. Anything that is not understood is an error that shows the valid form.

use core::fmt;
use core::str::FromStr;

/// The default port of iSCSI (RFC 7143 §13.8).
const DEFAULT_PORT: u16 = 3260;
/// The longest iSCSI name (RFC 7143 §4.2.7.1).
const MAX_NAME: usize = 223;
/// The highest LUN of the flat space addressing method.
const MAX_LUN: u16 = 16383;
/// The longest user name or password: the limit of a text value (RFC 7143 §6.1).
const MAX_SECRET: usize = 255;

/// Transport of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// iSCSI over TCP.
    Iscsi,
    /// iSCSI over RDMA.
    Iser,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Iscsi => "iscsi",
            Transport::Iser => "iser",
        })
    }
}

/// User name and password for CHAP.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Credentials { user, .. } = self;
        write!(f, "Credentials {{ user: {user:?}, password: … }}")
    }
}

/// Which digest an address asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Digest {
    /// None preferred, CRC32C accepted.
    #[default]
    Either,
    /// None.
    None,
    /// CRC32C required.
    Crc32c,
}

/// The address of a disk, of a target, or of a portal for discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Transport of the session.
    pub transport: Transport,
    /// A host name or an IP address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// Our CHAP credentials.
    pub credentials: Option<Credentials>,
    /// The target's CHAP credentials, for mutual CHAP.
    pub target_credentials: Option<Credentials>,
    /// The target name; absent in the address of a portal.
    pub target: Option<String>,
    /// The logical unit; absent in the address of a target.
    pub lun: Option<u16>,
    /// HeaderDigest.
    pub header_digest: Digest,
    /// DataDigest.
    pub data_digest: Digest,
}

/// Why a text is not an address. The message shows the valid form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{address}` is not the address of a disk: {problem}; the form is {FORM}")]
pub struct AddressError {
    /// The text given, without passwords.
    address: String,
    problem: Problem,
}

const FORM: &str = "iscsi://[user%password@]host[:port]/target-name/lun[?options] or iser://…, \
                    for example iscsi://192.0.2.1/iqn.2024-01.org.example:disk/1";

/// What is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("it must begin with iscsi:// or iser://")]
    Scheme,
    #[error("the host is missing")]
    Host,
    #[error("the host `{0}` has invalid characters")]
    HostName(String),
    #[error("`{0}` is no IPv6 address in brackets")]
    Ipv6(String),
    #[error("an IPv6 address needs brackets, as in [{0}]")]
    Brackets(String),
    #[error("`{0}` is no port (1 to 65535)")]
    Port(String),
    #[error("before the `@` a name and a password are needed, as user%password")]
    Password,
    #[error("a percent sign in a password is written as %25")]
    Escape,
    #[error("the {0} is empty or longer than {MAX_SECRET} bytes")]
    Secret(&'static str),
    #[error(
        "`{0}` is no target name: they begin with iqn., eui. or naa. and have letters, digits and - . : only"
    )]
    Target(String),
    #[error("the target name has {0} bytes, more than {MAX_NAME}")]
    LongTarget(usize),
    #[error("`{0}` is not a LUN (0 to {MAX_LUN})")]
    Lun(String),
    #[error("something follows the LUN: `{0}`")]
    TrailingInput(String),
    #[error(
        "in `{0}` a percent sign is not followed by two hexadecimal digits, or the bytes are not UTF-8"
    )]
    Percent(String),
    #[error("`{0}` is no option (target_user, target_password, header_digest and data_digest are)")]
    Option(String),
    #[error("`{0}` is no digest (crc32c or none)")]
    Digest(String),
    #[error("{0} is given twice")]
    Duplicate(String),
    #[error("target_user and target_password go together, and with a user%password of our own")]
    Mutual,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        parse(text).map_err(|problem| AddressError {
            address: without_secrets(text),
            problem,
        })
    }
}

fn parse(text: &str) -> Result<Address, Problem> {
    let (scheme, rest) = text.split_once("://").ok_or(Problem::Scheme)?;
    let transport = match scheme.to_ascii_lowercase().as_str() {
        "iscsi" => Transport::Iscsi,
        "iser" => Transport::Iser,
        _ => return Err(Problem::Scheme),
    };
    let (rest, options) = match rest.split_once('?') {
        Some((rest, options)) => (rest, Some(options)),
        None => (rest, None),
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (credentials, place) = match authority.rsplit_once('@') {
        Some((login, place)) => (Some(login_of(login)?), place),
        None => (None, authority),
    };
    let (host, port) = host_port_of(place)?;
    let (target, lun) = path_of(path)?;
    let mut address = Address {
        transport,
        host,
        port,
        credentials,
        target_credentials: None,
        target,
        lun,
        header_digest: Digest::Either,
        data_digest: Digest::Either,
    };
    if let Some(options) = options {
        apply(&mut address, options)?;
    }
    Ok(address)
}

/// `user%password`: split at the first percent sign, as in libiscsi; in the password a percent sign is written as `%25`.
fn login_of(login: &str) -> Result<Credentials, Problem> {
    let (user, password) = login.split_once('%').ok_or(Problem::Password)?;
    let password = decoded(password).map_err(|_| Problem::Escape)?;
    Ok(Credentials {
        user: secret("user name", user.to_owned())?,
        password: secret("password", password)?,
    })
}

fn secret(what: &'static str, text: String) -> Result<String, Problem> {
    let fits = !text.is_empty() && text.len() <= MAX_SECRET;
    fits.then_some(text).ok_or(Problem::Secret(what))
}

/// `host`, `host:port`, `[ipv6]` or `[ipv6]:port`.
fn host_port_of(place: &str) -> Result<(String, u16), Problem> {
    let (host, port) = if let Some(inside) = place.strip_prefix('[') {
        let wrong = || Problem::Ipv6(place.to_owned());
        let (host, after) = inside.split_once(']').ok_or_else(wrong)?;
        let (number, _zone) = host.split_once('%').unwrap_or((host, ""));
        number.parse::<core::net::Ipv6Addr>().map_err(|_| wrong())?;
        let port = match after {
            "" => None,
            _ => Some(after.strip_prefix(':').ok_or_else(wrong)?),
        };
        (host.to_owned(), port)
    } else if place.matches(':').count() > 1 {
        return Err(Problem::Brackets(place.to_owned()));
    } else {
        let (host, port) = match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        };
        let host = decoded(host)?;
        let usual = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
        if host.is_empty() {
            return Err(Problem::Host);
        }
        if !host.chars().all(usual) {
            return Err(Problem::HostName(host));
        }
        (host, port)
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(text) => match text.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(Problem::Port(text.to_owned())),
        },
    };
    Ok((host, port))
}

/// Empty, `target`, or `target/lun`.
fn path_of(path: &str) -> Result<(Option<String>, Option<u16>), Problem> {
    let mut parts = path.splitn(3, '/');
    let target = match parts.next() {
        None | Some("") => None,
        Some(name) => Some(target_of(&decoded(name)?)?),
    };
    let lun = match parts.next() {
        None | Some("") => None,
        Some(text) => match text.parse() {
            // A LUN requires a target name.
            Ok(lun) if lun <= MAX_LUN && target.is_some() => Some(lun),
            _ => return Err(Problem::Lun(text.to_owned())),
        },
    };
    match parts.next() {
        None | Some("") => Ok((target, lun)),
        Some(rest) => Err(Problem::TrailingInput(rest.to_owned())),
    }
}

/// RFC 7143 §4.2.7: three types of names, in lower case.
fn target_of(name: &str) -> Result<String, Problem> {
    let name = name.to_lowercase();
    let kind = ["iqn.", "eui.", "naa."];
    // The underscore is not allowed by the RFC, but occurs in practice.
    let usual = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | ':' | '_');
    if !kind.iter().any(|kind| name.starts_with(kind)) || !name.chars().all(usual) {
        return Err(Problem::Target(name));
    }
    if name.len() > MAX_NAME {
        return Err(Problem::LongTarget(name.len()));
    }
    Ok(name)
}

fn apply(address: &mut Address, options: &str) -> Result<(), Problem> {
    let (mut user, mut password) = (None, None);
    let (mut header, mut data) = (None, None);
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let into = match key {
            "target_user" => &mut user,
            "target_password" => &mut password,
            "header_digest" => &mut header,
            "data_digest" => &mut data,
            _ => return Err(Problem::Option(key.to_owned())),
        };
        let value = match key {
            "target_password" => decoded(value).map_err(|_| Problem::Escape)?,
            _ => decoded(value)?,
        };
        if into.replace(value).is_some() {
            return Err(Problem::Duplicate(key.to_owned()));
        }
    }
    address.target_credentials = match (user, password) {
        (None, None) => None,
        (Some(user), Some(password)) if address.credentials.is_some() => Some(Credentials {
            user: secret("target_user", user)?,
            password: secret("target_password", password)?,
        }),
        _ => return Err(Problem::Mutual),
    };
    address.header_digest = digest_of(header)?;
    address.data_digest = digest_of(data)?;
    Ok(())
}

fn digest_of(text: Option<String>) -> Result<Digest, Problem> {
    let Some(text) = text else {
        return Ok(Digest::Either);
    };
    match text.to_ascii_lowercase().as_str() {
        "crc32c" => Ok(Digest::Crc32c),
        "none" => Ok(Digest::None),
        _ => Err(Problem::Digest(text)),
    }
}

/// Percent-decoding.
fn decoded(text: &str) -> Result<String, Problem> {
    let wrong = || Problem::Percent(text.to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        bytes.push(if *first != b'%' {
            *first
        } else if let [high, low, after @ ..] = rest {
            rest = after;
            let (high, low) = hex(*high).zip(hex(*low)).ok_or_else(wrong)?;
            high << 4 | low
        } else {
            return Err(wrong());
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

/// The text without anything that may be a password, for messages.
fn without_secrets(text: &str) -> String {
    let (front, options) = match text.split_once('?') {
        Some((front, options)) => (front, Some(options)),
        None => (text, None),
    };
    let mut shown = match front.rsplit_once('@') {
        Some((login, place)) => {
            let scheme = login.find("://").map_or(0, |at| at + 3);
            format!("{}…@{place}", &login[..scheme])
        }
        None => front.to_owned(),
    };
    let hide = |option: &str| match option.split_once('=') {
        Some((key, _)) if key.contains("password") => format!("{key}=…"),
        _ => option.to_owned(),
    };
    if let Some(options) = options {
        let options: Vec<String> = options.split('&').map(hide).collect();
        shown += &format!("?{}", options.join("&"));
    }
    shown
}

/// Without credentials and options.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.transport)?;
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => write!(f, "{}", self.host)?,
        }
        if self.port != DEFAULT_PORT {
            write!(f, ":{}", self.port)?;
        }
        if let Some(target) = &self.target {
            write!(f, "/{target}")?;
        }
        match self.lun {
            Some(lun) => write!(f, "/{lun}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
