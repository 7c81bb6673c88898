//! Seeds of the targets for storage: one iSCSI header of each kind with its data segment, and data of SCSI logical units.
//! Those that the codecs can emit are built by them, so that they follow changes of a format.

use verbena_storage_wire::iscsi::{
    AsyncEvent, AsyncMessage, Attribute, Bhs, DataIn, DataOut, FromInitiator, FromTarget,
    LoginRequest, LoginResponse, LoginStatus, LogoutOutcome, LogoutReason, LogoutRequest,
    LogoutResponse, Lun, NO_TAG, NopIn, NopOut, R2t, Reject, RejectReason, Residual, ScsiCommand,
    ScsiResponse, Service, Snack, SnackKind, Stage, TaskFunction, TaskOutcome, TaskRequest,
    TaskResponse, TextRequest, TextResponse, Window, text,
};
use verbena_storage_wire::iser::{Hello, HelloReply, IserHeader, VERSION};
use verbena_storage_wire::scsi::{Capacity, Cdb, DeviceType, Inquiry, Luns, Sense, SenseKey};
use verbena_wire::Stag;

use crate::Seed;

const WINDOW: Window = Window {
    exp_cmd_sn: 5,
    max_cmd_sn: 69,
};

fn from_initiator(pdu: impl Into<FromInitiator>) -> Bhs {
    pdu.into().emit()
}

fn from_target(pdu: impl Into<FromTarget>) -> Bhs {
    pdu.into().emit()
}

fn keys(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    pairs
        .iter()
        .for_each(|(key, value)| text::push(&mut out, key, value));
    out
}

fn initiator(lun: Lun) -> Vec<(&'static str, Bhs)> {
    let (itt, cmd_sn, exp_stat_sn) = (7, 5, 9);
    let command = ScsiCommand {
        immediate: false,
        is_final: true,
        read: true,
        write: false,
        attribute: Attribute::Simple,
        ahs_len: 0,
        data_len: 0,
        lun,
        itt,
        expected_len: 4096,
        cmd_sn,
        exp_stat_sn,
        cdb: Cdb::read(8, 8).bytes(),
    };
    let nop = NopOut {
        immediate: true,
        data_len: 4,
        lun,
        itt,
        ttt: NO_TAG,
        cmd_sn,
        exp_stat_sn,
    };
    let task = TaskRequest {
        immediate: true,
        function: TaskFunction::AbortTask,
        lun,
        itt,
        reference: 6,
        cmd_sn,
        exp_stat_sn,
        ref_cmd_sn: 4,
        exp_data_sn: 0,
    };
    let out = DataOut {
        is_final: true,
        data_len: 512,
        lun,
        itt,
        ttt: 3,
        exp_stat_sn,
        data_sn: 1,
        offset: 4096,
    };
    let logout = LogoutRequest {
        immediate: true,
        reason: LogoutReason::CloseSession,
        itt,
        cid: 0,
        cmd_sn,
        exp_stat_sn,
    };
    let snack = Snack {
        kind: SnackKind::Data,
        lun,
        itt,
        ttt: NO_TAG,
        exp_stat_sn,
        first: 1,
        count: 2,
    };
    vec![
        ("command", from_initiator(command)),
        ("nop-out", from_initiator(nop)),
        ("task-request", from_initiator(task)),
        ("data-out", from_initiator(out)),
        ("logout-request", from_initiator(logout)),
        ("snack", from_initiator(snack)),
    ]
}

fn target(lun: Lun) -> Vec<(&'static str, Bhs)> {
    let (itt, stat_sn, window) = (7, 9, WINDOW);
    let nop = NopIn {
        data_len: 0,
        lun,
        itt: NO_TAG,
        ttt: 3,
        stat_sn,
        window,
    };
    let task = TaskResponse {
        response: TaskOutcome::Complete,
        itt,
        stat_sn,
        window,
    };
    let data = DataIn {
        is_final: true,
        acknowledge: false,
        status: Some(0),
        residual: Residual::Underflow(30),
        data_len: 66,
        lun,
        itt,
        ttt: NO_TAG,
        stat_sn,
        window,
        data_sn: 0,
        offset: 0,
    };
    let r2t = R2t {
        lun,
        itt,
        ttt: 3,
        stat_sn,
        window,
        r2t_sn: 0,
        offset: 0,
        len: 0x4000,
    };
    let logout = LogoutResponse {
        response: LogoutOutcome::Closed,
        itt,
        stat_sn,
        window,
        time2wait: 2,
        time2retain: 0,
    };
    let event = AsyncMessage {
        event: AsyncEvent::LogoutRequest,
        vcode: 0,
        parameters: [0, 0, 10],
        data_len: 0,
        lun,
        stat_sn,
        window,
    };
    vec![
        ("nop-in", from_target(nop)),
        ("task-response", from_target(task)),
        ("data-in", from_target(data)),
        ("r2t", from_target(r2t)),
        ("logout-response", from_target(logout)),
        ("async", from_target(event)),
    ]
}

/// Headers with a data segment that has a meaning.
fn with_data(lun: Lun) -> Vec<Seed> {
    let isid = [0x80, 1, 2, 3, 0, 1];
    let offer = keys(&[
        ("InitiatorName", "iqn.a:b"),
        ("HeaderDigest", "CRC32C,None"),
        ("MaxBurstLength", "0x40000"),
        ("InitialR2T", "No"),
    ]);
    let chap = keys(&[("CHAP_I", "5"), ("CHAP_C", "0bZm9vYg==")]);
    let found = keys(&[("TargetName", "iqn.c"), ("TargetAddress", "[::1]:3260,1")]);
    let request = LoginRequest {
        more: false,
        csg: Stage::Operational,
        nsg: Some(Stage::FullFeature),
        version_max: 0,
        version_min: 0,
        data_len: offer.len() as u32,
        isid,
        tsih: 0,
        itt: 1,
        cid: 0,
        cmd_sn: 1,
        exp_stat_sn: 0,
    };
    let response = LoginResponse {
        more: false,
        csg: Stage::Security,
        nsg: None,
        version_max: 0,
        version_active: 0,
        data_len: chap.len() as u32,
        isid,
        tsih: 0,
        itt: 1,
        stat_sn: 0,
        window: WINDOW,
        status: LoginStatus::Success,
    };
    let ask = TextRequest {
        immediate: false,
        is_final: true,
        more: false,
        data_len: 16,
        lun,
        itt: 9,
        ttt: NO_TAG,
        cmd_sn: 1,
        exp_stat_sn: 2,
    };
    let answer = TextResponse {
        is_final: true,
        more: false,
        data_len: found.len() as u32,
        lun,
        itt: 9,
        ttt: NO_TAG,
        stat_sn: 2,
        window: WINDOW,
    };
    let sense = [&[0, 18][..], &sense().emit()].concat();
    let checked = ScsiResponse {
        response: Service::Completed,
        status: 2,
        residual: Residual::None,
        bidi_residual: Residual::None,
        data_len: sense.len() as u32,
        itt: 7,
        snack: 0,
        stat_sn: 9,
        window: WINDOW,
        exp_data_sn: 0,
    };
    let reject = Reject {
        reason: RejectReason::ProtocolError,
        data_len: 48,
        stat_sn: 9,
        window: WINDOW,
        data_sn: 0,
    };
    let joined = |bhs: Bhs, data: &[u8]| [&bhs[..], data].concat();
    vec![
        ("login-request", joined(from_initiator(request), &offer)),
        ("login-response", joined(from_target(response), &chap)),
        (
            "text-request",
            joined(from_initiator(ask), &keys(&[("SendTargets", "All")])),
        ),
        ("text-response", joined(from_target(answer), &found)),
        ("check-condition", joined(from_target(checked), &sense)),
        (
            "reject",
            joined(from_target(reject), &from_initiator(request)),
        ),
    ]
}

fn greetings() -> Vec<Seed> {
    let control = IserHeader {
        write: Some((Stag::new(0x0101), 0x1000)),
        read: Some((Stag::new(0x0202), 0x2000)),
    };
    let hello = Hello {
        version_max: VERSION,
        version_min: VERSION,
        ird: 4,
    };
    let reply = HelloReply {
        rejected: false,
        version_max: VERSION,
        version: VERSION,
        ord: 4,
    };
    vec![
        ("iser-control", control.emit().to_vec()),
        ("iser-hello", hello.emit().to_vec()),
        ("iser-reply", reply.emit().to_vec()),
    ]
}

/// iSCSI headers with their data segments, and iSER headers.
pub(crate) fn headers() -> Vec<Seed> {
    let lun = Lun::new(1).unwrap_or_default();
    let bare = initiator(lun).into_iter().chain(target(lun));
    let mut seeds: Vec<Seed> = bare.map(|(name, bhs)| (name, bhs.to_vec())).collect();
    seeds.extend(with_data(lun));
    seeds.extend(greetings());
    seeds
}

fn sense() -> Sense {
    Sense {
        deferred: false,
        key: SenseKey::IllegalRequest,
        asc: 0x21,
        ascq: 0,
        information: Some(0x8000),
    }
}

/// Data of SCSI logical units.
pub(crate) fn answers() -> Vec<Seed> {
    let inquiry = Inquiry {
        qualifier: 0,
        device: DeviceType::Disk,
        removable: false,
        version: 5,
        vendor: *b"IET     ",
        product: *b"VIRTUAL-DISK    ",
        revision: *b"0001",
    };
    let capacity = Capacity {
        last_lba: 0x7fff,
        block_len: 512,
        physical_exponent: 3,
        protected: false,
        thin: true,
        reads_zeros: true,
    };
    let units: Vec<Lun> = [0, 1, 300].into_iter().filter_map(Lun::new).collect();
    let mut list = Vec::new();
    Luns::emit(&units, &mut list);
    let mut limits = vec![0, 0xb0, 0, 0x3c, 1, 2, 0, 8];
    limits.extend((8..64).map(|at: u8| at));
    let descriptors = [
        &[0x72, 5, 0x21, 0, 0, 0, 0, 12, 0, 10, 0x80, 0][..],
        &[0, 0, 0, 1, 0, 0, 0x80, 0],
    ];
    let names = [
        &[0, 0x83, 0, 21, 1, 3, 0, 8, 0x60, 1, 2, 3, 4, 5, 6, 7][..],
        &[2, 0x18, 0, 5],
        b"iqn.a",
    ];
    vec![
        ("sense-fixed", sense().emit().to_vec()),
        ("sense-descriptors", descriptors.concat()),
        ("inquiry", inquiry.emit().to_vec()),
        ("capacity-10", capacity.emit10().to_vec()),
        ("capacity-16", capacity.emit16().to_vec()),
        ("units", list),
        ("mode", vec![3, 0, 0x90, 0]),
        ("page-list", vec![0, 0, 0, 4, 0, 0x80, 0x83, 0xb0]),
        ("page-serial", [&[0, 0x80, 0, 6][..], b"beaf11"].concat()),
        ("page-names", names.concat()),
        ("page-limits", limits),
        ("block", Cdb::write(1 << 33, 8, true).bytes().to_vec()),
    ]
}
