//! The files of one device with two addresses, by the paths that programs use.

use super::*;

fn device(personality: Personality) -> TreeDevice {
    TreeDevice {
        number: 0,
        name: "verbena0".to_owned(),
        guid: u64::from_ne_bytes([2, 0x76, 0x62, 0xfe, 192, 0, 2, 7]),
        personality,
        addresses: vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
        interfaces: vec![Some("eth0".to_owned()), None],
        link: LinkState::of(&[core::net::Ipv4Addr::LOCALHOST.into()]),
    }
}

fn roce() -> Tree {
    Tree::of(&[device(Personality::Roce)])
}

#[test]
fn files_are_found_through_links() {
    let tree = roce();
    for (path, content) in [
        ("class/infiniband/verbena0/node_type", "1: CA\n"),
        (
            "class/infiniband/verbena0/node_guid",
            "0276:62fe:c000:0207\n",
        ),
        ("class/infiniband/verbena0/ports/1/state", "4: ACTIVE\n"),
        ("class/infiniband/verbena0/device/class", "0x020000\n"),
        ("class/infiniband/verbena0/../../vendor", "0x5642\n"),
        ("class/infiniband_verbs/uverbs0/ibdev", "verbena0\n"),
        ("class/infiniband_verbs/uverbs0/device/device", "0x0001\n"),
        ("class/infiniband_mad/abi_version", "5\n"),
    ] {
        assert_eq!(tree.file(path), Some(content), "{path}");
    }
    for path in [
        "class/infiniband/verbena1/node_type",
        "",
        "class",
        "class/net",
    ] {
        assert_eq!(tree.file(path), None, "{path}");
    }
}

#[test]
fn gid_files_agree_with_the_table() {
    let tree = roce();
    let port = |file: &str| {
        let path = format!("class/infiniband/verbena0/ports/1/{file}");
        tree.file(&path).map(str::to_owned)
    };
    let mapped = "0000:0000:0000:0000:0000:ffff:c000:0207\n";
    for index in [0, 1, 3] {
        assert_eq!(port(&format!("gids/{index}")).as_deref(), Some(mapped));
        let kind = port(&format!("gid_attrs/types/{index}"));
        assert_eq!(kind.as_deref(), Some("RoCE v2\n"));
        let interface = port(&format!("gid_attrs/ndevs/{index}"));
        assert_eq!(interface.as_deref(), Some("eth0\n"));
    }
    let second = "2001:0db8:0000:0000:0000:0000:0000:0007\n";
    assert_eq!(port("gids/2").as_deref(), Some(second));
    assert_eq!(port("gid_attrs/ndevs/2").as_deref(), Some(""));
    let empty = "0000:0000:0000:0000:0000:0000:0000:0000\n";
    assert_eq!(port("gids/15").as_deref(), Some(empty));
    assert_eq!(port("gid_attrs/types/15").as_deref(), Some(""));
    assert_eq!(port("gids/16"), None);
}

#[test]
fn iwarp_devices_are_rnics() {
    let tree = Tree::of(&[device(Personality::Iwarp)]);
    let file = |path: &str| tree.file(&format!("class/infiniband/verbena0/{path}"));
    assert_eq!(file("node_type"), Some("4: RNIC\n"));
    assert_eq!(file("ports/1/gid_attrs/types/0"), Some("IB/RoCE v1\n"));
}

#[test]
fn masks_have_a_bit_per_processor() {
    let (mask, list) = processors();
    assert!(mask.ends_with('\n') && list.ends_with('\n'));
    let bits = mask.trim().split(',');
    let bits = bits.map(|group| u32::from_str_radix(group, 16).unwrap().count_ones());
    assert!(bits.sum::<u32>() as usize >= std::thread::available_parallelism().unwrap().get());
}
