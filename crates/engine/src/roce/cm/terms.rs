//! The numbers that REQ and REP carry, from the attributes of a queue pair and from the route to the peer.
//! A field is narrower than the attribute it stands for: what does not fit becomes the largest value that does.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use verbena_nic::QpType;
use verbena_roce::{Mtu, Settings};
use verbena_stream::RnrRetry;
use verbena_wire::roce::Service;
use verbena_wire::roce::cm::CmTransport;

use crate::error::Error;
use crate::sys;

/// Repetitions of a request that is not acknowledged: the largest number that the field holds.
pub(super) const RETRY_COUNT: u8 = 7;
/// IPv4, UDP, BTH, RETH with immediate data, ICRC.
const HEADERS_V4: u32 = 20 + 8 + 12 + 20 + 4;
/// The same with IPv6.
const HEADERS_V6: u32 = HEADERS_V4 + 20;

/// The largest path MTU whose packets leave by the interface towards this peer in one piece.
pub(super) fn path_mtu(local: IpAddr, peer: SocketAddr) -> Result<Mtu, Error> {
    let unreachable = |cause| Error::Unreachable { peer, cause };
    let route = sys::route_to(Some(local), peer).map_err(unreachable)?;
    let headers = if peer.is_ipv4() {
        HEADERS_V4
    } else {
        HEADERS_V6
    };
    let fits = Mtu::largest_within(route.mtu.saturating_sub(headers));
    Ok(fits.unwrap_or(Mtu::B256))
}

/// The time before a request is repeated: with all repetitions it is as long as the peer may be silent.
pub(super) fn ack_timeout(peer_timeout: Option<Duration>) -> Option<Duration> {
    peer_timeout.map(|whole| whole / (u32::from(RETRY_COUNT) + 1))
}

/// The code of the longest time that is not longer than this one; 0 is for ever.
pub(super) fn timeout_code(timeout: Option<Duration>) -> u8 {
    let Some(timeout) = timeout else {
        return 0;
    };
    let fits = |code: &u8| Settings::timeout_of(*code).is_some_and(|time| time <= timeout);
    (1..=31).rev().find(fits).unwrap_or(1)
}

/// The three bits of the verbs.
pub(super) fn rnr_code(retry: RnrRetry) -> u8 {
    match retry {
        RnrRetry::Never => 0,
        RnrRetry::Times(times) => times.min(Settings::RNR_FOREVER - 1),
        RnrRetry::Forever => Settings::RNR_FOREVER,
    }
}

/// Reads and atomics at once, as a field of eight bits.
pub(super) fn depth(depth: u16) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}

/// The transport service of a queue pair; an error for XRC, which RoCEv2 does not have here.
pub(super) fn service_of(qp_type: QpType) -> Result<Service, Error> {
    match qp_type {
        QpType::Rc => Ok(Service::Rc),
        QpType::Uc => Ok(Service::Uc),
        _ => Err(verbena_nic::Error::Xrc(
            "the peer is connected over RoCEv2, which has no XRC here",
        )
        .into()),
    }
}

/// The transport service in a REQ.
pub(super) const fn transport_of(service: Service) -> CmTransport {
    match service {
        Service::Rc => CmTransport::Rc,
        Service::Uc => CmTransport::Uc,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_codes_are_rounded_down() {
        for code in 1..=31 {
            let time = Settings::timeout_of(code).unwrap();
            assert_eq!(timeout_code(Some(time)), code);
            assert_eq!(timeout_code(Some(time + Duration::from_nanos(1))), code);
        }
        assert_eq!(timeout_code(None), 0);
        assert_eq!(timeout_code(Some(Duration::ZERO)), 1);
    }

    #[test]
    fn path_mtu_fits_the_loopback_interface() {
        let local: IpAddr = "127.0.0.1".parse().unwrap();
        let peer = "127.0.0.2:4791".parse().unwrap();
        assert_eq!(path_mtu(local, peer).unwrap(), Mtu::B4096);
    }
}
