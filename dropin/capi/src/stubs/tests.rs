//! The stubs as a C caller sees them.

use core::ffi::{c_char, c_int, c_void};
use std::collections::BTreeSet;

// By their C names, as the linker finds them.
unsafe extern "C" {
    safe fn ibv_alloc_dmah() -> *mut c_void;
    safe fn ibv_query_port_speed() -> c_int;
    safe fn ibv_dm_export_dmabuf_fd() -> c_int;
    safe fn ibv_wr_opcode_str() -> *const c_char;
    safe fn verbena_old_ibv_get_device_guid() -> u64;
    safe fn verbena_rdma_write_cm_event() -> c_int;
    safe fn verbena_repoll_create() -> c_int;
}

fn errno() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

#[test]
fn each_stub_returns_failure_of_its_type() {
    assert!(ibv_alloc_dmah().is_null());
    assert_eq!(errno(), Some(libc::EOPNOTSUPP));
    assert_eq!(ibv_query_port_speed(), libc::EOPNOTSUPP);
    super::set_errno(0);
    assert_eq!(ibv_dm_export_dmabuf_fd(), -1);
    assert_eq!(errno(), Some(libc::EOPNOTSUPP));
    assert!(!ibv_wr_opcode_str().is_null());
    assert_eq!(verbena_old_ibv_get_device_guid(), 0);
}

#[test]
fn unimplemented_calls_set_enosys_every_time() {
    for _ in 0..2 {
        super::set_errno(0);
        assert_eq!(verbena_rdma_write_cm_event(), -1);
        assert_eq!(errno(), Some(libc::ENOSYS));
        super::set_errno(0);
        assert_eq!(verbena_repoll_create(), -1);
        assert_eq!(errno(), Some(libc::ENOSYS));
    }
}

/// Names under the nodes that `of` chooses, with their standing.
fn names(table: &str, of: impl Fn(&str) -> bool) -> BTreeSet<(&str, &str)> {
    let mut found = BTreeSet::new();
    let mut chosen = false;
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [node, ..] if node.starts_with('[') => chosen = of(node.trim_matches(['[', ']'])),
            [name, standing, _] if chosen => {
                found.insert((*name, *standing));
            }
            _ => {}
        }
    }
    found
}

fn stubbed(source: &str) -> BTreeSet<&str> {
    let rows = source.lines().filter(|line| line.ends_with(';'));
    rows.filter_map(|line| Some(line.split_once(" => ")?.0.trim()))
        .collect()
}

#[test]
fn stub_lists_match_export_tables() {
    let table = include_str!("../../exports/libibverbs.txt");
    let cm = include_str!("../../exports/librdmacm.txt");
    let newer: BTreeSet<&str> = ["1.15", "1.16", "1.17", "1.18"]
        .iter()
        .flat_map(|v| names(table, |node| node == format!("IBVERBS_{v}")))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(stubbed(include_str!("newer.rs")), newer);
    let old = names(table, |node| !node.contains("PRIVATE"));
    let old = old.iter().filter(|(_, standing)| *standing == "compat");
    let old: BTreeSet<String> = old.map(|(name, _)| format!("verbena_old_{name}")).collect();
    let ours = stubbed(include_str!("old.rs"));
    assert_eq!(ours, old.iter().map(String::as_str).collect());
    // Two of them are real, and one is no function.
    let real = [
        "ibv_query_gid_type",
        "ibv_read_ibdev_sysfs_file",
        "verbs_allow_disassociate_destroy",
    ];
    let drivers = names(table, |node| node.contains("PRIVATE"));
    let drivers = drivers.iter().map(|(name, _)| *name);
    let drivers = drivers.filter(|name| !real.contains(name)).collect();
    assert_eq!(stubbed(include_str!("drivers.rs")), drivers);
    let all: BTreeSet<String> = names(cm, |_| true)
        .iter()
        .map(|(name, _)| format!("verbena_{name}"))
        .collect();
    let ours = stubbed(include_str!("cm.rs"));
    assert!(ours.iter().all(|name| all.contains(*name)), "{ours:?}");
}
