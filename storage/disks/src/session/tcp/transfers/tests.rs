//! Counts of contiguous data for all combinations of parameters, and a target that uses tags of no command.

use verbena_storage_wire::iscsi::{BHS_LEN, DataIn, Lun, NO_TAG, R2t, Residual, Window};

use super::*;

const WINDOW: Window = Window {
    exp_cmd_sn: 1,
    max_cmd_sn: 1,
};

fn data(itt: u32, offset: u32, len: u32) -> Bhs {
    let pdu = DataIn {
        is_final: false,
        acknowledge: false,
        status: None,
        residual: Residual::None,
        data_len: len,
        lun: Lun::default(),
        itt,
        ttt: NO_TAG,
        stat_sn: 0,
        window: WINDOW,
        data_sn: 0,
        offset,
    };
    pdu.emit()
}

fn r2t(itt: u32, offset: u32, len: u32) -> Bhs {
    let pdu = R2t {
        lun: Lun::default(),
        itt,
        ttt: 5,
        stat_sn: 0,
        window: WINDOW,
        r2t_sn: 0,
        offset,
        len,
    };
    pdu.emit()
}

/// A SCSI Response with the fields that are used here.
fn response(itt: u32) -> Bhs {
    let mut bhs: Bhs = [0; BHS_LEN];
    bhs[0] = 0x21;
    bhs[16..20].copy_from_slice(&itt.to_be_bytes());
    bhs
}

#[test]
fn contiguous_read_data_is_summed() {
    let mut tally = Transfers::new(&Terms::DEFAULT);
    assert_eq!(tally.close(&data(1, 0, 4096)).received, 4096, "in one PDU");
    assert!(tally.count_data_in(&data(1, 0, 512), 2));
    assert!(tally.count_data_in(&data(2, 0, 100), 2), "each has its own");
    assert!(tally.count_data_in(&data(1, 512, 512), 2));
    assert!(!tally.count_data_in(&data(1, 2048, 512), 2), "a hole");
    assert_eq!(tally.close(&data(1, 1024, 8)).received, 1032);
    assert_eq!(tally.close(&response(2)).received, 100);
    assert_eq!(tally.close(&response(2)).received, 0, "and is over");
}

#[test]
fn repeated_data_counts_once() {
    let mut tally = Transfers::new(&Terms::DEFAULT);
    for _ in 0..2 {
        assert!(tally.count_data_in(&data(1, 0, 512), 1));
    }
    assert_eq!(tally.close(&response(1)).received, 512);
}

#[test]
fn write_count_starts_after_unsolicited_data() {
    let terms = |immediate_data, initial_r2t, max_send| Terms {
        immediate_data,
        initial_r2t,
        max_send,
        first_burst: 1000,
        ..Terms::DEFAULT
    };
    for (terms, unasked) in [
        (terms(false, true, 600), 0),
        (terms(true, true, 600), 600),
        (terms(true, true, 5000), 1000),
        (terms(false, false, 600), 1000),
        (terms(true, false, 600), 1000),
    ] {
        let mut tally = Transfers::new(&terms);
        assert_eq!(tally.close(&response(1)).sent, unasked);
        assert!(tally.count_r2t(&r2t(1, unasked, 50), 1));
        assert!(tally.count_r2t(&r2t(1, unasked + 60, 50), 1), "a hole");
        assert!(tally.count_r2t(&r2t(1, unasked + 50, 7), 1));
        assert_eq!(tally.close(&response(1)).sent, unasked + 57);
    }
}

#[test]
fn unknown_tags_do_not_accumulate() {
    let mut tally = Transfers::new(&Terms::DEFAULT);
    for tag in 0..10_000 {
        let known = tag < 3;
        let pdu = if tag % 2 == 0 {
            r2t(tag, 65_536, 1)
        } else {
            data(tag, 0, 1)
        };
        let taken = if tag % 2 == 0 {
            tally.count_r2t(&pdu, 3)
        } else {
            tally.count_data_in(&pdu, 3)
        };
        assert_eq!(taken, known, "{tag}");
    }
    assert_eq!(tally.open.len(), 3);
    tally.remove(0);
    assert!(
        !tally.count_data_in(&data(7, 0, 0), 3),
        "without data nothing came"
    );
    assert_eq!(tally.open.len(), 2);
}

#[test]
fn counts_saturate_at_their_limits() {
    let mut tally = Transfers::new(&Terms::DEFAULT);
    assert!(tally.count_r2t(&r2t(1, Terms::DEFAULT.max_unsolicited(), u32::MAX), 1));
    assert!(tally.count_r2t(&r2t(1, u32::MAX, u32::MAX), 1));
    assert_eq!(tally.close(&response(1)).sent, u32::MAX);
}
