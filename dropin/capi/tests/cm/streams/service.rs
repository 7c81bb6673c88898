//! Type of service: the option of an identifier is set on its connection's packets; that of a listener, on all its connections'.

use core::ffi::c_void;
use core::mem::{size_of, zeroed};

use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;

use super::begin;
use crate::common::streams::{Client, Id, Server};
use crate::common::{call, errno};

fn serve(id: &Id, mut class: u8, len: usize) -> i32 {
    let (level, name) = (RDMA_OPTION_ID as i32, RDMA_OPTION_ID_TOS as i32);
    let value = (&raw mut class).cast::<c_void>();
    call!(rdma_set_option(id.0, level, name, value, len))
}

/// The type of service of this process's connections that have this port on that side.
fn services(port: u16, ours: bool) -> Vec<i32> {
    let of = |fd: i32| {
        // SAFETY: room for an address and a number, each with its length; a descriptor that is not there is an error.
        unsafe {
            let mut address: libc::sockaddr_in = zeroed();
            let mut len = size_of::<libc::sockaddr_in>() as u32;
            let at = (&raw mut address).cast();
            // A listener has no peer.
            if libc::getpeername(fd, at, &raw mut len) != 0 {
                return None;
            }
            if ours && libc::getsockname(fd, at, &raw mut len) != 0 {
                return None;
            }
            let (mut class, mut len) = (0_i32, 4_u32);
            let value = (&raw mut class).cast();
            let code = libc::getsockopt(fd, libc::IPPROTO_IP, libc::IP_TOS, value, &raw mut len);
            let here = i32::from(address.sin_family) == libc::AF_INET;
            (code == 0 && here && u16::from_be(address.sin_port) == port).then_some(class)
        }
    };
    (3..1024).filter_map(of).collect()
}

#[test]
fn type_of_service_option_applies_to_connection() {
    begin();
    let server = Server::new(0);
    assert_eq!(serve(&server.id, 0x28, 1), 0);
    let client = Client::resolved_to(server.at);
    assert_eq!(serve(&client.id, 0x20, 1), 0);
    assert_eq!(client.id.connect(b""), 0);
    let child = server.accept_next(b"");
    client.channel.expect(RDMA_CM_EVENT_ESTABLISHED);
    assert_eq!(services(server.at.port(), false), [0x20]);
    assert_eq!(services(server.at.port(), true), [0x28]);
    assert_eq!(serve(&client.id, 0, 2), -1, "no number has two bytes");
    assert_eq!(errno(), libc::EINVAL);
    drop(child);
}
