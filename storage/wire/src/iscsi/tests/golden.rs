//! One header of each kind with a distinct value in every field, written by hand from RFC 7143 §11, and its `Display` line.

use verbena_wire::testing::hex;

use super::super::*;

pub(super) fn bhs(text: &str) -> Bhs {
    hex(text).try_into().expect("48 bytes")
}

const LUN: Lun = Lun::from_bytes([0x41, 0x02, 0, 0, 0, 0, 0, 0]);
const WINDOW: Window = Window {
    exp_cmd_sn: 0x1c1d_1e1f,
    max_cmd_sn: 0x2021_2223,
};
const TTT: u32 = 0x1415_1617;
const W24: u32 = 0x1819_1a1b;
const W28: u32 = 0x1c1d_1e1f;
const W36: u32 = 0x2425_2627;
const W40: u32 = 0x2829_2a2b;
const W44: u32 = 0x2c2d_2e2f;
const ITT: u32 = 0x1011_1213;
const DATA: u32 = 0x05_0607;

/// Bytes and value of each kind that an initiator sends.
pub(super) fn initiator() -> Vec<(Bhs, FromInitiator)> {
    let row = |text: &str, pdu: FromInitiator| (bhs(text), pdu);
    vec![
        row(
            "40800000 00050607 41020000 00000000 10111213 14151617 18191a1b 1c1d1e1f \
             00000000 00000000 00000000 00000000",
            NopOut {
                immediate: true,
                data_len: DATA,
                lun: LUN,
                itt: ITT,
                ttt: TTT,
                cmd_sn: W24,
                exp_stat_sn: W28,
            }
            .into(),
        ),
        row(
            "41630000 04050607 41020000 00000000 10111213 14151617 18191a1b 1c1d1e1f \
             20212223 24252627 28292a2b 2c2d2e2f",
            ScsiCommand {
                immediate: true,
                is_final: false,
                read: true,
                write: true,
                attribute: Attribute::Head,
                ahs_len: 16,
                data_len: DATA,
                lun: LUN,
                itt: ITT,
                expected_len: TTT,
                cmd_sn: W24,
                exp_stat_sn: W28,
                cdb: core::array::from_fn(|at| 0x20 + at as u8),
            }
            .into(),
        ),
        row(
            "42810000 00000000 41020000 00000000 10111213 14151617 18191a1b 1c1d1e1f \
             20212223 24252627 00000000 00000000",
            TaskRequest {
                immediate: true,
                function: TaskFunction::AbortTask,
                lun: LUN,
                itt: ITT,
                reference: TTT,
                cmd_sn: W24,
                exp_stat_sn: W28,
                ref_cmd_sn: 0x2021_2223,
                exp_data_sn: W36,
            }
            .into(),
        ),
        row(
            "43870203 00050607 08090a0b 0c0d0e0f 10111213 14150000 18191a1b 1c1d1e1f \
             00000000 00000000 00000000 00000000",
            LoginRequest {
                more: false,
                csg: Stage::Operational,
                nsg: Some(Stage::FullFeature),
                version_max: 2,
                version_min: 3,
                data_len: DATA,
                isid: [8, 9, 10, 11, 12, 13],
                tsih: 0x0e0f,
                itt: ITT,
                cid: 0x1415,
                cmd_sn: W24,
                exp_stat_sn: W28,
            }
            .into(),
        ),
        row(
            "44400000 00050607 41020000 00000000 10111213 14151617 18191a1b 1c1d1e1f \
             00000000 00000000 00000000 00000000",
            TextRequest {
                immediate: true,
                is_final: false,
                more: true,
                data_len: DATA,
                lun: LUN,
                itt: ITT,
                ttt: TTT,
                cmd_sn: W24,
                exp_stat_sn: W28,
            }
            .into(),
        ),
        row(
            "05800000 00050607 41020000 00000000 10111213 14151617 00000000 1c1d1e1f \
             00000000 24252627 28292a2b 00000000",
            DataOut {
                is_final: true,
                data_len: DATA,
                lun: LUN,
                itt: ITT,
                ttt: TTT,
                exp_stat_sn: W28,
                data_sn: W36,
                offset: W40,
            }
            .into(),
        ),
        row(
            "46810000 00000000 00000000 00000000 10111213 14150000 18191a1b 1c1d1e1f \
             00000000 00000000 00000000 00000000",
            LogoutRequest {
                immediate: true,
                reason: LogoutReason::CloseConnection,
                itt: ITT,
                cid: 0x1415,
                cmd_sn: W24,
                exp_stat_sn: W28,
            }
            .into(),
        ),
        row(
            "10810000 00000000 41020000 00000000 10111213 14151617 00000000 1c1d1e1f \
             00000000 00000000 28292a2b 2c2d2e2f",
            Snack {
                kind: SnackKind::Status,
                lun: LUN,
                itt: ITT,
                ttt: TTT,
                exp_stat_sn: W28,
                first: W40,
                count: W44,
            }
            .into(),
        ),
    ]
}

/// Bytes and value of each kind that a target sends.
pub(super) fn target() -> Vec<(Bhs, FromTarget)> {
    let row = |text: &str, pdu: FromTarget| (bhs(text), pdu);
    vec![
        row(
            "20800000 00050607 41020000 00000000 10111213 14151617 18191a1b 1c1d1e1f \
             20212223 00000000 00000000 00000000",
            NopIn {
                data_len: DATA,
                lun: LUN,
                itt: ITT,
                ttt: TTT,
                stat_sn: W24,
                window: WINDOW,
            }
            .into(),
        ),
        row(
            "21920108 00050607 00000000 00000000 10111213 14151617 18191a1b 1c1d1e1f \
             20212223 24252627 28292a2b 2c2d2e2f",
            ScsiResponse {
                response: Service::TargetFailure,
                status: 8,
                residual: Residual::Underflow(W44),
                bidi_residual: Residual::Overflow(W40),
                data_len: DATA,
                itt: ITT,
                snack: TTT,
                stat_sn: W24,
                window: WINDOW,
                exp_data_sn: W36,
            }
            .into(),
        ),
        row(
            "2280ff00 00000000 00000000 00000000 10111213 00000000 18191a1b 1c1d1e1f \
             20212223 00000000 00000000 00000000",
            TaskResponse {
                response: TaskOutcome::Rejected,
                itt: ITT,
                stat_sn: W24,
                window: WINDOW,
            }
            .into(),
        ),
        row(
            "23440203 00050607 08090a0b 0c0d0e0f 10111213 00000000 18191a1b 1c1d1e1f \
             20212223 020a0000 00000000 00000000",
            LoginResponse {
                more: true,
                csg: Stage::Operational,
                nsg: None,
                version_max: 2,
                version_active: 3,
                data_len: DATA,
                isid: [8, 9, 10, 11, 12, 13],
                tsih: 0x0e0f,
                itt: ITT,
                stat_sn: W24,
                window: WINDOW,
                status: LoginStatus::NoSession,
            }
            .into(),
        ),
        row(
            "24800000 00050607 41020000 00000000 10111213 14151617 18191a1b 1c1d1e1f \
             20212223 00000000 00000000 00000000",
            TextResponse {
                is_final: true,
                more: false,
                data_len: DATA,
                lun: LUN,
                itt: ITT,
                ttt: TTT,
                stat_sn: W24,
                window: WINDOW,
            }
            .into(),
        ),
        row(
            "25c50028 00050607 41020000 00000000 10111213 14151617 18191a1b 1c1d1e1f \
             20212223 24252627 28292a2b 2c2d2e2f",
            DataIn {
                is_final: true,
                acknowledge: true,
                status: Some(0x28),
                residual: Residual::Overflow(W44),
                data_len: DATA,
                lun: LUN,
                itt: ITT,
                ttt: TTT,
                stat_sn: W24,
                window: WINDOW,
                data_sn: W36,
                offset: W40,
            }
            .into(),
        ),
        row(
            "26800200 00000000 00000000 00000000 10111213 00000000 18191a1b 1c1d1e1f \
             20212223 00000000 28292a2b 00000000",
            LogoutResponse {
                response: LogoutOutcome::RecoveryUnsupported,
                itt: ITT,
                stat_sn: W24,
                window: WINDOW,
                time2wait: 0x2829,
                time2retain: 0x2a2b,
            }
            .into(),
        ),
        row(
            "31800000 00000000 41020000 00000000 10111213 14151617 18191a1b 1c1d1e1f \
             20212223 24252627 28292a2b 2c2d2e2f",
            R2t {
                lun: LUN,
                itt: ITT,
                ttt: TTT,
                stat_sn: W24,
                window: WINDOW,
                r2t_sn: W36,
                offset: W40,
                len: W44,
            }
            .into(),
        ),
        row(
            "32800000 00050607 41020000 00000000 ffffffff 00000000 18191a1b 1c1d1e1f \
             20212223 03252627 28292a2b 00000000",
            AsyncMessage {
                event: AsyncEvent::SessionDrop,
                vcode: 0x25,
                parameters: [0x2627, 0x2829, 0x2a2b],
                data_len: DATA,
                lun: LUN,
                stat_sn: W24,
                window: WINDOW,
            }
            .into(),
        ),
        row(
            "3f800400 00050607 00000000 00000000 ffffffff 00000000 18191a1b 1c1d1e1f \
             20212223 24252627 00000000 00000000",
            Reject {
                reason: RejectReason::ProtocolError,
                data_len: DATA,
                stat_sn: W24,
                window: WINDOW,
                data_sn: W36,
            }
            .into(),
        ),
    ]
}

#[test]
fn every_kind_parses_and_emits_exactly() {
    for (bytes, pdu) in initiator() {
        assert_eq!(FromInitiator::parse(&bytes), Ok(pdu), "{pdu}");
        assert_eq!(pdu.emit(), bytes, "{pdu}");
        assert_eq!(Opcode::of(&bytes), Some(pdu.opcode()));
    }
    for (bytes, pdu) in target() {
        assert_eq!(FromTarget::parse(&bytes), Ok(pdu), "{pdu}");
        assert_eq!(pdu.emit(), bytes, "{pdu}");
        assert_eq!(Opcode::of(&bytes), Some(pdu.opcode()));
    }
    // All opcodes are covered.
    let seen = initiator().len() + target().len();
    assert_eq!(seen, Opcode::ALL.len());
}

#[test]
fn prints_one_line() {
    let ours: Vec<String> = initiator().iter().map(|(_, pdu)| pdu.to_string()).collect();
    let theirs: Vec<String> = target().iter().map(|(_, pdu)| pdu.to_string()).collect();
    assert!(ours.iter().chain(&theirs).all(|line| !line.contains('\n')));
    assert_eq!(
        ours[1],
        "SCSI Command lun=258 itt=0x10111213 expected=336926231 cmdsn=404298267 expstatsn=471670303 \
         data=329223 ahs=16 head cdb=202122232425262728292a2b2c2d2e2f read write immediate"
    );
    assert_eq!(
        ours[3],
        "Login Request operational->full-feature isid=08090a0b0c0d tsih=0x0e0f itt=0x10111213 cid=5141 \
         versions=3..=2 cmdsn=404298267 expstatsn=471670303 data=329223"
    );
    assert_eq!(
        theirs[1],
        "SCSI Response itt=0x10111213 target-failure status=0x08 statsn=404298267 \
         window=471670303..=539042339 expdatasn=606414375 residual=underflow(741158447) data=329223 \
         bidi=overflow(673786411)"
    );
    assert_eq!(
        theirs[3],
        "Login Response operational isid=08090a0b0c0d tsih=0x0e0f itt=0x10111213 version=3 statsn=404298267 \
         window=471670303..=539042339 data=329223 status=\"session does not exist\" more"
    );
    assert_eq!(
        theirs[5],
        "Data-In lun=258 itt=0x10111213 ttt=0x14151617 window=471670303..=539042339 datasn=606414375 \
         offset=673786411 data=329223 status=0x28 statsn=404298267 residual=overflow(741158447) final acknowledge"
    );
    let unsolicited = DataOut {
        ttt: NO_TAG,
        ..DataOut::parse(&initiator()[5].0).unwrap()
    };
    assert!(unsolicited.to_string().contains(" ttt=- "), "{unsolicited}");
}

/// Values wider than their field: the surplus bits are not sent.
#[test]
fn surplus_bits_are_not_sent() {
    let FromInitiator::ScsiCommand(command) = initiator()[1].1 else {
        unreachable!("the second row");
    };
    let wide = ScsiCommand {
        data_len: 0xff05_0607,
        ahs_len: 1024 + 18,
        attribute: Attribute::Unknown(0xfb),
        ..command
    };
    assert_eq!(wide.emit(), command.emit());
}
