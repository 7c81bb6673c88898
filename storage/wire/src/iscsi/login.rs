//! Login Request and Response (RFC 7143 §11.12, §11.13): stages and status of a login. A PDU with C set has T clear. The
//! order of stages and the text are checked elsewhere.

use core::fmt;

use verbena_wire::Malformed;
use zerocopy::byteorder::big_endian::U32;

use super::layout::{CONTINUE, Raw, Tag, bit, flags, halves, len24, word};
use super::{Bhs, Opcode, Window};
use crate::coded::coded;

const TRANSIT: u8 = 0x80;
const CURRENT_SHIFT: u32 = 2;
const STAGE: u8 = 0x03;

coded! {
    /// A stage of the login, two bits; 2 is reserved.
    Stage: u8 {
        /// SecurityNegotiation: authentication.
        Security = 0 "security",
        /// LoginOperationalNegotiation: parameters of session and connection.
        Operational = 1 "operational",
        /// FullFeaturePhase: the login is complete.
        FullFeature = 3 "full-feature",
    }
}

coded! {
    /// The status of a login: the class in the upper byte and the detail in the lower.
    LoginStatus: u16 {
        /// The login may continue, or is complete.
        Success = 0x0000 "success",
        /// The target has moved temporarily to its TargetAddress.
        MovedTemporarily = 0x0101 "target moved temporarily",
        /// The target has moved permanently to its TargetAddress.
        MovedPermanently = 0x0102 "target moved permanently",
        /// Initiator error without a detail.
        InitiatorError = 0x0200 "initiator error",
        /// The initiator could not be authenticated.
        AuthenticationFailed = 0x0201 "authentication failed",
        /// The initiator may not use this target.
        NotAuthorised = 0x0202 "not authorised for this target",
        /// There is no such target.
        NotFound = 0x0203 "target not found",
        /// The target was removed and has no forwarding address.
        Removed = 0x0204 "target removed",
        /// No version in common.
        Version = 0x0205 "version not supported",
        /// The session has as many connections as it may.
        TooManyConnections = 0x0206 "too many connections",
        /// A key is missing, such as a name.
        MissingParameter = 0x0207 "parameter missing",
        /// The target cannot add this connection to that session.
        CannotInclude = 0x0208 "cannot include connection in session",
        /// The target does not support sessions of this type.
        SessionType = 0x0209 "session type not supported",
        /// There is no such session.
        NoSession = 0x020a "session does not exist",
        /// The request is invalid during the login.
        InvalidDuringLogin = 0x020b "invalid during login",
        /// Target error without a detail.
        TargetError = 0x0300 "target error",
        /// The target or its service is not available now.
        Unavailable = 0x0301 "service unavailable",
        /// The target has not enough resources.
        OutOfResources = 0x0302 "out of resources",
    }
}

impl LoginStatus {
    /// Status-Class: 0 success, 1 redirection, 2 initiator error, 3 target error.
    pub const fn class(self) -> u8 {
        (self.code() >> 8) as u8
    }

    /// Status-Detail.
    pub const fn detail(self) -> u8 {
        self.code() as u8
    }

    /// Class 0, with any detail.
    pub const fn is_success(self) -> bool {
        self.class() == 0
    }
}

/// T, C, CSG and NSG, encoded alike in both directions.
struct Step {
    more: bool,
    csg: Stage,
    nsg: Option<Stage>,
}

impl Step {
    fn read(raw: &Raw) -> Result<Step, Malformed> {
        // RFC 7143 §11.12.2: with C, T must not be set.
        raw.refuse(raw.has(TRANSIT) && raw.has(CONTINUE))?;
        Ok(Step {
            more: raw.has(CONTINUE),
            csg: Stage::from_code(raw.flags >> CURRENT_SHIFT & STAGE),
            nsg: raw
                .has(TRANSIT)
                .then(|| Stage::from_code(raw.flags & STAGE)),
        })
    }

    fn flags(&self) -> u8 {
        let next = self.nsg.map_or(0, |next| TRANSIT | next.code() & STAGE);
        bit(self.more, CONTINUE) | (self.csg.code() & STAGE) << CURRENT_SHIFT | next
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.csg)?;
        match self.nsg {
            Some(next) => write!(f, "->{next}"),
            None => Ok(()),
        }
    }
}

/// ISID and TSIH, which identify the session.
fn session(isid: [u8; 6], tsih: u16) -> [u8; 8] {
    let ([a, b, c, d, e, f], [g, h]) = (isid, tsih.to_be_bytes());
    [a, b, c, d, e, f, g, h]
}

fn isid_and_tsih([a, b, c, d, e, f, g, h]: [u8; 8]) -> ([u8; 6], u16) {
    ([a, b, c, d, e, f], u16::from_be_bytes([g, h]))
}

fn show_session(f: &mut fmt::Formatter<'_>, isid: [u8; 6], tsih: u16) -> fmt::Result {
    f.write_str(" isid=")?;
    isid.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
    write!(f, " tsih={tsih:#06x}")
}

/// Login Request. The I bit is always set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginRequest {
    /// C: the text continues in the next request.
    pub more: bool,
    /// Current stage.
    pub csg: Stage,
    /// Next stage, if the initiator is ready to leave the current one (T).
    pub nsg: Option<Stage>,
    /// Highest version offered.
    pub version_max: u8,
    /// Lowest version offered.
    pub version_min: u8,
    /// Bytes of text.
    pub data_len: u32,
    /// The initiator's part of the session ID.
    pub isid: [u8; 6],
    /// The target's part of the session ID, 0 for a new session.
    pub tsih: u16,
    /// Initiator task tag, the same in the whole login.
    pub itt: u32,
    /// CID: number of the connection in its session.
    pub cid: u16,
    /// CmdSN.
    pub cmd_sn: u32,
    /// ExpStatSN.
    pub exp_stat_sn: u32,
}

impl LoginRequest {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<LoginRequest, Malformed> {
        let raw = Raw::read(bhs, Opcode::LoginRequest)?;
        let Step { more, csg, nsg } = Step::read(&raw)?;
        let (isid, tsih) = isid_and_tsih(raw.lun);
        Ok(LoginRequest {
            more,
            csg,
            nsg,
            version_max: raw.b2,
            version_min: raw.b3,
            data_len: raw.data_len(),
            isid,
            tsih,
            itt: raw.itt.get(),
            cid: halves(raw.w20).0,
            cmd_sn: raw.w24.get(),
            exp_stat_sn: raw.w28.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        Raw {
            flags: self.step().flags(),
            b2: self.version_max,
            b3: self.version_min,
            data_len: len24(self.data_len),
            lun: session(self.isid, self.tsih),
            itt: U32::new(self.itt),
            w20: word(self.cid, 0),
            w24: U32::new(self.cmd_sn),
            w28: U32::new(self.exp_stat_sn),
            ..Raw::new(Opcode::LoginRequest)
        }
        .immediate(true)
        .emit()
    }

    fn step(&self) -> Step {
        let LoginRequest { more, csg, nsg, .. } = *self;
        Step { more, csg, nsg }
    }
}

impl fmt::Display for LoginRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Opcode::LoginRequest, self.step())?;
        show_session(f, self.isid, self.tsih)?;
        write!(
            f,
            " itt={} cid={} versions={}..={} cmdsn={} expstatsn={} data={}",
            Tag(self.itt),
            self.cid,
            self.version_min,
            self.version_max,
            self.cmd_sn,
            self.exp_stat_sn,
            self.data_len
        )?;
        flags(f, &[(self.more, "more")])
    }
}

/// Login Response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginResponse {
    /// C: the text continues in the next response.
    pub more: bool,
    /// Current stage.
    pub csg: Stage,
    /// Next stage, if the target agrees to leave the current one (T).
    pub nsg: Option<Stage>,
    /// Highest version the target supports.
    pub version_max: u8,
    /// The version in use.
    pub version_active: u8,
    /// Bytes of text.
    pub data_len: u32,
    /// As in the request.
    pub isid: [u8; 6],
    /// The target's part of the session ID; not 0 when the login is complete.
    pub tsih: u16,
    /// As in the request.
    pub itt: u32,
    /// StatSN; the first response sets its initial value.
    pub stat_sn: u32,
    /// The CmdSNs that the target accepts.
    pub window: Window,
    /// The status.
    pub status: LoginStatus,
}

impl LoginResponse {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<LoginResponse, Malformed> {
        let raw = Raw::read(bhs, Opcode::LoginResponse)?;
        let Step { more, csg, nsg } = Step::read(&raw)?;
        let (isid, tsih) = isid_and_tsih(raw.lun);
        Ok(LoginResponse {
            more,
            csg,
            nsg,
            version_max: raw.b2,
            version_active: raw.b3,
            data_len: raw.data_len(),
            isid,
            tsih,
            itt: raw.itt.get(),
            stat_sn: raw.w24.get(),
            window: raw.window(),
            status: LoginStatus::from_code(halves(raw.w36).0),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        Raw {
            flags: self.step().flags(),
            b2: self.version_max,
            b3: self.version_active,
            data_len: len24(self.data_len),
            lun: session(self.isid, self.tsih),
            itt: U32::new(self.itt),
            w24: U32::new(self.stat_sn),
            w36: word(self.status.code(), 0),
            ..Raw::new(Opcode::LoginResponse)
        }
        .with_window(self.window)
        .emit()
    }

    fn step(&self) -> Step {
        let LoginResponse { more, csg, nsg, .. } = *self;
        Step { more, csg, nsg }
    }
}

impl fmt::Display for LoginResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Opcode::LoginResponse, self.step())?;
        show_session(f, self.isid, self.tsih)?;
        write!(
            f,
            " itt={} version={} statsn={} {} data={} status=\"{}\"",
            Tag(self.itt),
            self.version_active,
            self.stat_sn,
            self.window,
            self.data_len,
            self.status
        )?;
        flags(f, &[(self.more, "more")])
    }
}
