//! Sizes and offsets as a table, and the macro that writes it.
//! It promises that a row that does not hold does not compile, and that the test against the headers reads the same rows.
//! It refuses a struct that is not named: only those that C knows by name have rows.

use libc::pthread_mutex_t;

/// By how much a lock is longer than on x86-64, for which the rows are written (8 on aarch64 with glibc).
pub(super) const MUTEX: usize = size_of::<pthread_mutex_t>() - 40;

/// A struct or union as C programs know it.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// `struct` or `union`.
    pub kind: &'static str,
    /// Its tag.
    pub name: &'static str,
    /// Its bytes.
    pub size: usize,
    /// Its members, and those of members whose type has no name.
    pub fields: &'static [Field],
}

/// A member.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// How it is reached in Rust, with spaces and `r#` as the compiler writes them.
    pub rust: &'static str,
    /// How it is reached in C, where that differs.
    pub c: Option<&'static str>,
    /// Where it begins.
    pub offset: usize,
    /// Its bytes.
    pub size: usize,
}

/// The bytes of what a pointer points to, which is how a member's size is had without a value.
pub(super) const fn size_behind<T>(_: *const T) -> usize {
    size_of::<T>()
}

/// Check sizes and offsets at compile time, put them into the table `LAYOUT`, and give every struct a `zeroed`.
///
/// `struct name [size] { member: offset, member.inner: offset, member.inner as "inner": offset, … }`
macro_rules! layouts {
    ($($kind:ident $name:ident [$size:expr] {
        $($($field:ident).+ $(as $c:literal)?: $offset:expr,)*
    })*) => {
        $(
            const _: () = assert!(size_of::<$name>() == $size);
            $(const _: () = assert!(std::mem::offset_of!($name, $($field).+) == $offset);)*

            impl $name {
                /// All bytes zero.
                #[must_use]
                pub const fn zeroed() -> Self {
                    // SAFETY: integers, raw pointers, optional functions, and arrays, structs and unions of these are all
                    // there is in the types of these files (and in those of libc that they hold); zero is a value of each.
                    unsafe { std::mem::zeroed() }
                }
            }
        )*

        pub(super) const LAYOUT: &[$crate::abi::layout::Layout] = &[$(
            $crate::abi::layout::Layout {
                kind: stringify!($kind),
                name: stringify!($name),
                size: $size,
                fields: &[$(
                    $crate::abi::layout::Field {
                        rust: stringify!($($field).+),
                        c: layouts!(@c $($c)?),
                        offset: $offset,
                        size: $crate::abi::layout::size_behind({
                            let value = std::mem::MaybeUninit::<$name>::uninit();
                            // SAFETY: the place is inside `value`, and only its address is taken: nothing is read.
                            unsafe { &raw const (*value.as_ptr()).$($field).+ }
                        }),
                    },
                )*],
            },
        )*];
    };
    (@c) => { None };
    (@c $c:literal) => { Some($c) };
}

pub(super) use layouts;
