//! The constants that C programs know, and the macro that writes them.
//! They promise one table of all, which a test compares with the headers.
//! They refuse to be typed: a program may pass any number, and it is judged where it arrives.

mod cm;
mod device;
mod object;
mod work;

pub use cm::*;
pub use device::*;
pub use object::*;
pub use work::*;

/// A constant as C programs know it.
#[derive(Debug, Clone, Copy)]
pub struct Constant {
    /// Its name.
    pub name: &'static str,
    /// Its value; of one with 32 bits, only those count.
    pub value: i64,
    /// 32 or 64.
    pub bits: u32,
}

/// Every constant of these files, for a test that compares them with the headers.
pub const CONSTANTS: [&[Constant]; 4] = [
    cm::CONSTANTS,
    device::CONSTANTS,
    object::CONSTANTS,
    work::CONSTANTS,
];

/// Define constants by enum, and put them into the table `CONSTANTS`.
macro_rules! constants {
    ($($enum:ident: $type:ident { $($name:ident = $value:expr,)* })*) => {
        $($(
            #[doc = concat!("Of `", stringify!($enum), "`.")]
            pub const $name: $type = $value;
        )*)*

        pub(super) const CONSTANTS: &[$crate::abi::constants::Constant] = &[$($(
            $crate::abi::constants::Constant {
                name: stringify!($name),
                value: $name as i64,
                bits: $type::BITS,
            },
        )*)*];
    };
}

use constants;
