//! Names that the original libraries export and this one does not serve: each has a definition here that fails as its kind does.
//! It promises that a program which merely imports them loads, and that one which calls them is told so in its own terms.
//! It refuses to pretend: nothing here succeeds but what has no way to fail.
//!
//! Reading order: `newer` (public, younger than what is implemented) → `old` (of 2006) → `drivers` (for providers) →
//! `cm` (librdmacm, until it is written). Which name is exported where is in `exports/`.

use core::ffi::c_int;

mod cm;
mod drivers;
mod newer;
mod old;

/// Leaves a number where C looks for the reason.
fn set_errno(number: c_int) {
    crate::errno::Errno(number).set();
}

/// Defines functions that do nothing but fail. The words say how a caller is told:
///
/// * `null`: a null pointer, and `errno`;
/// * `code`: the error number itself;
/// * `minus_one`: -1, and `errno`;
/// * `zero`: nothing was counted or found;
/// * `nothing`: there is no way to tell;
/// * `word`: a text that says it is not known.
///
/// Arguments are not looked at, and the calling conventions leave them to the caller, so none are declared.
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
    // As wide as any of them: whoever wants an `int` reads its half.
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
