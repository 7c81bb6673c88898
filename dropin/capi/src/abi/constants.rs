//! The constants of the C headers, and the macro that defines them. They are all in one table, which a test compares with the headers.
//! They are plain integers: a program may pass any value, and the function that gets it checks it.

mod cm;
mod device;
mod object;
mod work;

pub use cm::*;
pub use device::*;
pub use object::*;
pub use work::*;

/// A constant of the C headers.
#[derive(Debug, Clone, Copy)]
pub struct Constant {
    /// Its name.
    pub name: &'static str,
    /// Its value; of a constant with 32 bits, only the lower half is meaningful.
    pub value: i64,
    /// 32 or 64.
    pub bits: u32,
}

/// Every constant of these modules, for a test that compares them with the headers.
pub const CONSTANTS: [&[Constant]; 4] = [
    cm::CONSTANTS,
    device::CONSTANTS,
    object::CONSTANTS,
    work::CONSTANTS,
];

/// Defines constants by enum, and puts them into the table `CONSTANTS`.
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
