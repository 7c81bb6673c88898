//! Texts and rates, compared value by value with the original library of the machine, which needs no device for them.
//! Where it is not installed, that is printed, and is a failure in CI.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use verbena_capi::verbs::*;

/// The original's function of this name, if the machine has it.
fn original(name: &str) -> Option<*mut c_void> {
    // SAFETY: `file` and the name are C strings; the original library starts nothing when it is loaded, and stays loaded.
    unsafe {
        let file = c"/usr/lib/x86_64-linux-gnu/libibverbs.so.1".as_ptr();
        let library = libc::dlopen(file, libc::RTLD_NOW | libc::RTLD_LOCAL);
        if library.is_null() {
            assert!(
                std::env::var_os("CI").is_none(),
                "no libibverbs to compare with"
            );
            eprintln!("not tested: no libibverbs to compare with");
            return None;
        }
        let name = CString::new(name).unwrap();
        let at = libc::dlsym(library, name.as_ptr());
        assert!(!at.is_null(), "{name:?}");
        Some(at)
    }
}

type TextFn = extern "C" fn(u32) -> *const c_char;
/// A function of this library, in the form of one from C.
type Ours = fn(c_int) -> c_int;
type NumberFn = extern "C" fn(c_int) -> c_int;

fn text(word: TextFn, number: u32) -> String {
    // SAFETY: C strings in static memory of a library that stays loaded.
    let text = unsafe { CStr::from_ptr(word(number)) };
    text.to_string_lossy().into_owned()
}

#[test]
fn enum_strings_match_original_library() {
    let ours: [(&str, TextFn); 4] = [
        ("ibv_node_type_str", ibv_node_type_str),
        ("ibv_port_state_str", ibv_port_state_str),
        ("ibv_event_type_str", ibv_event_type_str),
        ("ibv_wc_status_str", ibv_wc_status_str),
    ];
    for (name, ours) in ours {
        let Some(theirs) = original(name) else { return };
        // SAFETY: the original's function has this type.
        let theirs: TextFn = unsafe { core::mem::transmute(theirs) };
        for number in (0..64).chain([255, 1 << 16, u32::MAX]) {
            assert_eq!(text(ours, number), text(theirs, number), "{name}({number})");
        }
    }
}

#[test]
fn rate_conversions_match_original_library() {
    let ours: [(&str, Ours); 4] = [
        ("ibv_rate_to_mult", |n| ibv_rate_to_mult(n as u32)),
        ("ibv_rate_to_mbps", |n| ibv_rate_to_mbps(n as u32)),
        ("mult_to_ibv_rate", |n| mult_to_ibv_rate(n) as c_int),
        ("mbps_to_ibv_rate", |n| mbps_to_ibv_rate(n) as c_int),
    ];
    for (name, ours) in ours {
        let Some(theirs) = original(name) else { return };
        // SAFETY: the original's function has this type.
        let theirs: NumberFn = unsafe { core::mem::transmute(theirs) };
        for number in (-2..1_300_000).chain([c_int::MAX, c_int::MIN]) {
            assert_eq!(ours(number), theirs(number), "{name}({number})");
        }
    }
}
