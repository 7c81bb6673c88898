//! How a numeric field with known values becomes a type: an enum with words for people, which keeps the values it does
//! not know. It promises that every code makes the round trip. What a value leads to is not known here.

/// Declares an enum over an integer: `Name: u8 { Variant = 1 "words", }`.
macro_rules! coded {
    ($(#[$about:meta])* $name:ident: $int:ty { $($(#[$doc:meta])* $variant:ident = $code:literal $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
            /// A value that is not known here, as it came.
            Unknown($int),
        }

        impl $name {
            /// The value with this code.
            pub const fn from_code(code: $int) -> $name {
                match code {
                    $($code => $name::$variant,)*
                    code => $name::Unknown(code),
                }
            }

            /// Its code.
            pub const fn code(self) -> $int {
                match self {
                    $($name::$variant => $code,)*
                    $name::Unknown(code) => code,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $($name::$variant => f.write_str($word),)*
                    $name::Unknown(code) => write!(f, "unknown({code:#x})"),
                }
            }
        }
    };
}

pub(crate) use coded;
