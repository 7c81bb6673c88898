//! The GID table: at each index the address of the device that belongs there, and the interface that has the address.
//! The test runs in a network namespace of its own, with a pair of virtual Ethernet interfaces.

use std::ffi::CStr;

use crate::common::*;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

const SIZE_OF_ENTRY: usize = size_of::<ibv_gid_entry>();

/// The entry at an index, by `ibv_query_gid_ex`.
fn entry(side: &Side, index: u32) -> ibv_gid_entry {
    let mut entry = ibv_gid_entry::zeroed();
    let at = &raw mut entry;
    let code = call!(_ibv_query_gid_ex(
        side.context,
        1,
        index,
        at,
        0,
        SIZE_OF_ENTRY
    ));
    assert_eq!(code, 0, "index {index}");
    entry
}

/// All entries in use, by `ibv_query_gid_table`.
fn table(side: &Side) -> Vec<ibv_gid_entry> {
    let mut all = [ibv_gid_entry::zeroed(); 16];
    let (at, room) = (all.as_mut_ptr(), all.len());
    let count = call!(_ibv_query_gid_table(
        side.context,
        at,
        room,
        0,
        SIZE_OF_ENTRY
    ));
    all[..usize::try_from(count).expect("no error")].to_vec()
}

/// Index of the entry, IPv4 address, and interface.
fn row(entry: &ibv_gid_entry) -> (u32, [u8; 4], u32) {
    // SAFETY: all members of the union are 16 bytes of integers.
    let raw = unsafe { entry.gid.raw };
    let (prefix, address) = raw.split_last_chunk().expect("16 bytes");
    assert_eq!(prefix, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    (entry.gid_index, *address, entry.ndev_ifindex)
}

fn interface(name: &CStr) -> u32 {
    // SAFETY: `name` is NUL-terminated and outlives the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0, "{name:?}");
    index
}

#[test]
fn gid_entries_name_the_interface_of_the_address() {
    verbena_testing::own_network!(("VERBENA_DEVICE", "198.51.100.1,203.0.113.1,192.0.2.1"));
    ip("link set lo up");
    ip("link add near type veth peer name far");
    ip("address add 198.51.100.1/24 dev far");
    ip("address add 203.0.113.1/24 dev near");
    ip("address add 192.0.2.1/24 dev near");
    for name in ["near", "far"] {
        ip(&format!("link set {name} up"));
    }
    let (near, far) = (interface(c"near"), interface(c"far"));
    assert_ne!(near, far);
    let side = Side::new(SideParams::default());
    let mut port = ibv_port_attr::zeroed();
    assert_eq!(
        call!(ibv_query_port(side.context, 1, (&raw mut port).cast())),
        0
    );
    assert!(port.gid_tbl_len >= 16);

    let first = [198, 51, 100, 1];
    let expected = [
        (0, first, far),
        (1, first, far),
        (2, [203, 0, 113, 1], near),
        (3, first, far),
        (4, [192, 0, 2, 1], near),
    ];
    let single: Vec<_> = (0..5).map(|index| row(&entry(&side, index))).collect();
    assert_eq!(single, expected);
    assert_eq!(table(&side).iter().map(row).collect::<Vec<_>>(), expected);

    // An address that is moved, and one that no interface has any more.
    ip("address del 198.51.100.1/24 dev far");
    ip("address add 198.51.100.1/24 dev near");
    ip("address del 192.0.2.1/24 dev near");
    let interfaces: Vec<u32> = table(&side).iter().map(|e| e.ndev_ifindex).collect();
    assert_eq!(interfaces, [near, near, near, near, 0]);
}
