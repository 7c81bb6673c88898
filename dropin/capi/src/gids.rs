//! The GID table of the port: which of the device's addresses stands at which index.
//! The first address is at 0, 1 and 3, the indices that scripts written for RoCE adapters use; further addresses are at 2, 4, 5 and so on.
//! Entries behind them are empty, as on an adapter whose table is larger than its number of addresses.

use core::net::IpAddr;

/// Table lengths are multiples of this, and larger than the number of entries in use.
const STEP: usize = 16;

/// The address at an index; none if the entry is empty or not in the table.
pub(crate) fn at(addresses: &[IpAddr], index: usize) -> Option<IpAddr> {
    let first = addresses.first();
    let address = match index {
        0 | 1 | 3 => first,
        2 => addresses.get(1).or(first),
        _ => addresses.get(index - 2),
    };
    address.copied()
}

/// How many entries are in use: they have the indices from 0.
pub(crate) fn used(addresses: &[IpAddr]) -> usize {
    match addresses.len() {
        0 => 0,
        count => (count + 2).max(4),
    }
}

/// The length of the table.
pub(crate) fn len(addresses: &[IpAddr]) -> usize {
    (used(addresses) / STEP + 1) * STEP
}

/// The lowest index of an address.
pub(crate) fn index_of(addresses: &[IpAddr], address: IpAddr) -> Option<usize> {
    let index = |position| match position {
        0 => 0,
        1 => 2,
        _ => position + 2,
    };
    addresses.iter().position(|ip| *ip == address).map(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn addresses(count: u8) -> Vec<IpAddr> {
        let each = |last| IpAddr::from(Ipv4Addr::new(192, 0, 2, last));
        (0..count).map(each).collect()
    }

    #[test]
    fn first_address_is_at_indices_0_1_3() {
        for count in 1..40 {
            let all = addresses(count);
            for index in [0, 1, 3] {
                assert_eq!(at(&all, index), Some(all[0]));
            }
        }
    }

    #[test]
    fn every_address_is_found_at_its_index() {
        for count in 0..40 {
            let all = addresses(count);
            for ip in &all {
                let index = index_of(&all, *ip).unwrap();
                assert!(index < used(&all));
                assert_eq!(at(&all, index), Some(*ip));
            }
            assert_eq!(index_of(&all, Ipv4Addr::LOCALHOST.into()), None);
        }
    }

    #[test]
    fn empty_entries_follow_the_used_ones() {
        for count in 0..40 {
            let all = addresses(count);
            assert!((0..used(&all)).all(|index| at(&all, index).is_some()));
            assert!((used(&all)..len(&all) + 9).all(|index| at(&all, index).is_none()));
            assert!(used(&all) < len(&all));
        }
    }
}
