//! A table of sizes and offsets, and the macro that defines it. A wrong row does not compile, and the test against the headers reads the
//! same rows. Only structs that have a name in C have rows.

use libc::pthread_mutex_t;

/// By how many bytes a lock is longer than on x86-64, for which the rows are written (8 on aarch64 with glibc).
pub(super) const MUTEX: usize = size_of::<pthread_mutex_t>() - 40;

/// A struct or union of the C headers.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// `struct` or `union`.
    pub kind: &'static str,
    /// Its tag.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its members, and those of members whose type has no name.
    pub fields: &'static [Field],
}

/// A member.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its path in Rust, with spaces and `r#` as the compiler writes them.
    pub rust: &'static str,
    /// Its path in C, if that differs.
    pub c: Option<&'static str>,
    /// Its offset.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}

/// The size of a pointer's target: gives the size of a member without a value of it.
pub(super) const fn size_behind<T>(_: *const T) -> usize {
    size_of::<T>()
}

/// Checks sizes and offsets at compile time, puts them into the table `LAYOUT`, and gives every struct a `zeroed`.
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
                    // SAFETY: the types of these modules (and those of libc in them) consist of integers, raw pointers, optional functions, and
                    // arrays, structs and unions of these; zeros are valid for each.
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
                            // SAFETY: the field is inside `value`, and only its address is taken.
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
