//! A macro that declares an enum over the known values of a numeric field, with a text for each. Values without a
//! variant are kept in `Unknown`, so `from_code` followed by `code` returns every integer unchanged.

/// Declares an enum over an integer: `Name: u8 { Variant = 1 "text", }`.
macro_rules! coded {
    ($(#[$about:meta])* $name:ident: $int:ty { $($(#[$doc:meta])* $variant:ident = $code:literal $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
            /// A value without a variant, unchanged.
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

            /// The integer of this value.
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
