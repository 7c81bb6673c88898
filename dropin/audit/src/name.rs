//! Which names are those of the two libraries: decided by the last component of a path.
//! Provider libraries and other libraries of rdma-core are not among them.

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// libibverbs by one of its usual names.
    Verbs,
    /// librdmacm by one of its usual names.
    Cm,
    /// A copy of one of them by another name without a folder, for example `libibverbs-1de1263b.so.1.14.48.0`. Libraries that need it by that
    /// name look up symbol versions in it.
    Copy,
}

/// The last component and what it stands for; none if it is another library.
///
/// # Safety
/// `name` is a C string.
pub(crate) unsafe fn classify(name: *const u8) -> Option<(*const u8, Kind)> {
    let mut base = name;
    let mut at = name;
    // SAFETY: the caller guarantees a C string; no byte behind its zero is read.
    unsafe {
        while *at != 0 {
            if *at == b'/' {
                base = at.wrapping_add(1);
            }
            at = at.wrapping_add(1);
        }
        for (library, kind) in [
            (&b"libibverbs\0"[..], Kind::Verbs),
            (&b"librdmacm\0"[..], Kind::Cm),
        ] {
            let Some(rest) = strip_prefix(base, library.as_ptr()) else {
                continue;
            };
            for usual in [&b".so\0"[..], &b".so.1\0"[..]] {
                if equal(rest, usual.as_ptr()) {
                    return Some((base, kind));
                }
            }
            let mut rest = rest;
            if *rest == b'-' {
                // A hash or another mark of the copy: letters and digits.
                rest = rest.wrapping_add(1);
                let start = rest;
                while (*rest).is_ascii_alphanumeric() || *rest == b'_' {
                    rest = rest.wrapping_add(1);
                }
                if rest == start {
                    return None;
                }
            }
            let rest = strip_prefix(rest, c".so".as_ptr().cast())?;
            let kind = if base == name { Kind::Copy } else { kind };
            return (*rest == 0 || *rest == b'.').then_some((base, kind));
        }
    }
    None
}

/// What follows a prefix; none if the string does not begin with it.
///
/// # Safety
/// Both are C strings.
unsafe fn strip_prefix(text: *const u8, beginning: *const u8) -> Option<*const u8> {
    let (mut text, mut beginning) = (text, beginning);
    // SAFETY: the caller guarantees C strings; the first byte that differs or a zero ends the loop.
    unsafe {
        while *beginning != 0 {
            if *text != *beginning {
                return None;
            }
            text = text.wrapping_add(1);
            beginning = beginning.wrapping_add(1);
        }
    }
    Some(text)
}

/// Whether two strings are equal.
///
/// # Safety
/// Both are C strings.
pub(crate) unsafe fn equal(a: *const u8, b: *const u8) -> bool {
    // SAFETY: the caller guarantees C strings; `rest` lies within the first.
    unsafe { strip_prefix(a, b).is_some_and(|rest| *rest == 0) }
}
