//! Functions that the original libraries export and this one does not implement: each is defined here and fails as its kind does.
//! Programs that only import them load; a call returns an error, except of functions that cannot return one.
//!
//! Reading order: `newer` (public, newer than what is implemented) → `old` (of 2006) → `drivers` (for provider libraries) →
//! `cm` (librdmacm). Which name is exported where is in `exports/`.

use core::ffi::c_int;

mod cm;
mod drivers;
mod newer;
mod old;

/// Sets `errno`.
fn set_errno(number: c_int) {
    crate::errno::Errno(number).set();
}

/// Defines functions that only fail. The second name says how:
///
/// * `null`: a null pointer, and `errno`;
/// * `code`: the error number itself;
/// * `minus_one`: -1, and `errno`;
/// * `zero`: 0, a count or a value;
/// * `nothing`: no result;
/// * `word`: the text "unknown".
///
/// Arguments are not used, and in the C calling conventions the caller removes them, so none are declared.
macro_rules! stubs {
    ($( $name:ident => $how:ident; )+) => {
        $( stubs!(@ $name $how); )+
    };
    (@ $name:ident null) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> *mut core::ffi::c_void {
            crate::stubs::set_errno(refused(stringify!($name)));
            core::ptr::null_mut()
        }
    };
    (@ $name:ident code) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> core::ffi::c_int {
            refused(stringify!($name))
        }
    };
    // As wide as any result of these functions: a caller that expects an `int` reads the lower half.
    (@ $name:ident minus_one) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> isize {
            crate::stubs::set_errno(refused(stringify!($name)));
            -1
        }
    };
    (@ $name:ident zero) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> u64 {
            0
        }
    };
    (@ $name:ident nothing) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() {}
    };
    (@ $name:ident word) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> *const core::ffi::c_char {
            c"unknown".as_ptr()
        }
    };
}
use stubs;

#[cfg(test)]
mod tests;
