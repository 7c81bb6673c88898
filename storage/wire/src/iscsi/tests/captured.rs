//! A recorded session between an initiator and a target, and its meaning.

use verbena_wire::testing::hex;

use super::super::text::Pairs;
use super::super::*;
use super::golden::bhs;
use crate::scsi::{Capacity, Cdb, Luns, Sense, SenseKey, Status};

const ISID: [u8; 6] = [0x80, 0xaa, 0xbb, 0xcc, 0, 1];
const ZEROS: &str = "00000000 00000000 00000000 00000000";

fn disk() -> Lun {
    Lun::new(1).unwrap()
}

fn window(exp_cmd_sn: u32, max_cmd_sn: u32) -> Window {
    Window {
        exp_cmd_sn,
        max_cmd_sn,
    }
}

fn check_sent(text: &str, pdu: impl Into<FromInitiator>) {
    let (bytes, pdu) = (bhs(text), pdu.into());
    assert_eq!(FromInitiator::parse(&bytes), Ok(pdu));
    assert_eq!(pdu.emit(), bytes, "{pdu}");
}

fn check_received(text: &str, pdu: impl Into<FromTarget>) {
    let (bytes, pdu) = (bhs(text), pdu.into());
    assert_eq!(FromTarget::parse(&bytes), Ok(pdu));
    assert_eq!(pdu.emit(), bytes, "{pdu}");
}

#[test]
fn captured_login_parses_and_emits_exactly() {
    let security = LoginRequest {
        more: false,
        csg: Stage::Security,
        nsg: Some(Stage::Operational),
        version_max: 0,
        version_min: 0,
        data_len: 120,
        isid: ISID,
        tsih: 0,
        itt: 1,
        cid: 0,
        cmd_sn: 1,
        exp_stat_sn: 0,
    };
    check_sent(
        &format!("43810000 00000078 80aabbcc 00010000 00000001 00000000 00000001 00000000 {ZEROS}"),
        security,
    );
    let answer = LoginResponse {
        more: false,
        csg: Stage::Security,
        nsg: Some(Stage::Operational),
        version_max: 0,
        version_active: 0,
        data_len: 39,
        isid: ISID,
        tsih: 0,
        itt: 1,
        stat_sn: 0,
        window: window(1, 2),
        status: LoginStatus::Success,
    };
    check_received(
        "23810000 00000027 80aabbcc 00010000 00000001 00000000 00000000 00000001 \
         00000002 00000000 00000000 00000000",
        answer,
    );
    let text = b"TargetPortalGroupTag=1\0AuthMethod=None\0";
    assert_eq!(text.len(), 39);
    let pairs: Result<Vec<_>, _> = Pairs::new(text).collect();
    let expected = vec![("TargetPortalGroupTag", "1"), ("AuthMethod", "None")];
    assert_eq!(pairs, Ok(expected));

    let operational = LoginRequest {
        csg: Stage::Operational,
        nsg: Some(Stage::FullFeature),
        data_len: 0x12a,
        exp_stat_sn: 1,
        ..security
    };
    check_sent(
        &format!("43870000 0000012a 80aabbcc 00010000 00000001 00000000 00000001 00000001 {ZEROS}"),
        operational,
    );
    check_received(
        "23870000 000000fd 80aabbcc 00010300 00000001 00000000 00000001 00000001 \
         00000002 00000000 00000000 00000000",
        LoginResponse {
            csg: Stage::Operational,
            nsg: Some(Stage::FullFeature),
            data_len: 0xfd,
            tsih: 0x0300,
            stat_sn: 1,
            ..answer
        },
    );
}

fn command(itt: u32, expected_len: u32, cmd_sn: u32, cdb: Cdb) -> ScsiCommand {
    ScsiCommand {
        immediate: false,
        is_final: true,
        read: false,
        write: false,
        attribute: Attribute::Simple,
        ahs_len: 0,
        data_len: 0,
        lun: disk(),
        itt,
        expected_len,
        cmd_sn,
        exp_stat_sn: cmd_sn + 1,
        cdb: cdb.bytes(),
    }
}

#[test]
fn captured_test_unit_ready_reports_reset() {
    check_sent(
        &format!("01810000 00000000 00010000 00000000 00000002 00000000 00000001 00000002 {ZEROS}"),
        command(2, 0, 1, Cdb::test_unit_ready()),
    );
    check_received(
        "21800002 00000014 00000000 00000000 00000002 00000000 00000002 00000002 \
         00000082 00000000 00000000 00000000",
        ScsiResponse {
            response: Service::Completed,
            status: Status::CheckCondition.code(),
            residual: Residual::None,
            bidi_residual: Residual::None,
            data_len: 20,
            itt: 2,
            snack: 0,
            stat_sn: 2,
            window: window(2, 0x82),
            exp_data_sn: 0,
        },
    );
    let data = hex("0012 7000 06 00000000 0a 00000000 29 00 0000 0000");
    let sense = Sense::parse(ScsiResponse::sense(&data).unwrap()).unwrap();
    assert_eq!((sense.asc, sense.ascq), (0x29, 0));
    assert_eq!(sense.key, SenseKey::UnitAttention);
    assert_eq!(sense.to_string(), "unit attention: power on or reset");
}

#[test]
fn captured_inquiry_ends_with_data_in_status() {
    let inquiry = ScsiCommand {
        read: true,
        ..command(4, 96, 3, Cdb::inquiry(None, 96))
    };
    check_sent(
        "01c10000 00000000 00010000 00000000 00000004 00000060 00000003 00000004 \
         12000000 60000000 00000000 00000000",
        inquiry,
    );
    check_received(
        "25830000 00000042 00000000 00000000 00000004 ffffffff 00000004 00000004 \
         00000084 00000000 00000000 0000001e",
        DataIn {
            is_final: true,
            acknowledge: false,
            status: Some(Status::Good.code()),
            residual: Residual::Underflow(30),
            data_len: 66,
            lun: Lun::default(),
            itt: 4,
            ttt: NO_TAG,
            stat_sn: 4,
            window: window(4, 0x84),
            data_sn: 0,
            offset: 0,
        },
    );
}

#[test]
fn captured_write_waits_for_r2t() {
    let write = ScsiCommand {
        write: true,
        ..command(8, 0x4000, 7, Cdb::write(8, 32, false))
    };
    check_sent(
        "01a10000 00000000 00010000 00000000 00000008 00004000 00000007 00000008 \
         2a000000 00080000 20000000 00000000",
        write,
    );
    check_received(
        "31800000 00000000 00010000 00000000 00000008 d00ae6c1 00000008 00000008 \
         00000088 00000000 00000000 00004000",
        R2t {
            lun: disk(),
            itt: 8,
            ttt: 0xd00a_e6c1,
            stat_sn: 8,
            window: window(8, 0x88),
            r2t_sn: 0,
            offset: 0,
            len: 0x4000,
        },
    );
    let first = DataOut {
        is_final: false,
        data_len: 0x2000,
        lun: disk(),
        itt: 8,
        ttt: 0xd00a_e6c1,
        exp_stat_sn: 8,
        data_sn: 0,
        offset: 0,
    };
    check_sent(
        &format!("05000000 00002000 00010000 00000000 00000008 d00ae6c1 00000000 00000008 {ZEROS}"),
        first,
    );
    check_sent(
        "05800000 00002000 00010000 00000000 00000008 d00ae6c1 00000000 00000008 \
         00000000 00000001 00002000 00000000",
        DataOut {
            is_final: true,
            data_sn: 1,
            offset: 0x2000,
            ..first
        },
    );
}

#[test]
fn captured_disk_data_is_parsed() {
    let short = Capacity::parse10(&hex("00007fff 00000200")).unwrap();
    assert_eq!((short.blocks(), short.block_len), (Some(0x8000), 512));
    let long = format!("00000000 00007fff 00000200 00000000 {ZEROS}");
    assert_eq!(Capacity::parse16(&hex(&long)), Ok(short));
    let units = hex("00000010 00000000 00000000 00000000 00010000 00000000");
    let units = Luns::parse(&units).unwrap();
    let numbers: Vec<_> = units.iter().map(Lun::number).collect();
    assert_eq!(numbers, [Some(0), Some(1)]);
    assert!(units.is_complete());
}

#[test]
fn captured_control_pdus_parse_and_emit_exactly() {
    check_sent(
        &format!("40800000 00000004 00000000 00000000 00000077 ffffffff 0000000a 0000000b {ZEROS}"),
        NopOut {
            immediate: true,
            data_len: 4,
            lun: Lun::default(),
            itt: 0x77,
            ttt: NO_TAG,
            cmd_sn: 10,
            exp_stat_sn: 11,
        },
    );
    let ping = NopIn {
        data_len: 4,
        lun: Lun::default(),
        itt: 0x77,
        ttt: NO_TAG,
        stat_sn: 11,
        window: window(10, 0x8a),
    };
    check_received(
        "20800000 00000004 00000000 00000000 00000077 ffffffff 0000000b 0000000a \
         0000008a 00000000 00000000 00000000",
        ping,
    );
    assert!(!ping.wants_answer());
    check_sent(
        &format!("42850000 00000000 00010000 00000000 00000078 ffffffff 0000000a 0000000c {ZEROS}"),
        TaskRequest {
            immediate: true,
            function: TaskFunction::LogicalUnitReset,
            lun: disk(),
            itt: 0x78,
            reference: NO_TAG,
            cmd_sn: 10,
            exp_stat_sn: 12,
            ref_cmd_sn: 0,
            exp_data_sn: 0,
        },
    );
    check_sent(
        &format!("04800000 00000010 00000000 00000000 00000009 ffffffff 00000001 00000002 {ZEROS}"),
        TextRequest {
            immediate: false,
            is_final: true,
            more: false,
            data_len: 16,
            lun: Lun::default(),
            itt: 9,
            ttt: NO_TAG,
            cmd_sn: 1,
            exp_stat_sn: 2,
        },
    );
    let mut text = Vec::new();
    super::super::text::push(&mut text, "SendTargets", "All");
    assert_eq!(text, b"SendTargets=All\0");
}
