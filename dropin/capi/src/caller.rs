//! What a C program guarantees about the pointers that it passes to an entry point, stated once for each kind of pointer.
//! A macro of this file contains no `unsafe` block: it compiles only inside an `unsafe fn` (or block), whose caller has given the guarantee, and a
//! safe function cannot use it.

/// `handle!(pd::of(pd))`: a call that takes an object that the program names, in most cases to find the library's part of it.
///
/// # Safety
/// The caller of the function around it guarantees that the pointer is null or came from the call of this library that creates such objects, and that
/// no thread destroys the object before the function returns. Null is answered by the function that is called, with no reference or `EINVAL`.
macro_rules! handle {
    ($($of:ident)::+($pointer:expr)) => {{
        #[allow(unsafe_op_in_unsafe_fn, reason = "the section Safety of the macro")]
        let own = $($of)::+($pointer);
        own
    }};
}

/// `arg_ref!(attr)`: a struct that the program passes by address, to be read; none for null.
///
/// # Safety
/// The caller of the function around it guarantees that the pointer is null or points to an initialized struct of its type, and that no thread writes
/// it before the function returns.
macro_rules! arg_ref {
    ($pointer:ident) => {{
        #[allow(unsafe_op_in_unsafe_fn, reason = "the section Safety of the macro")]
        let arg = $pointer.as_ref();
        arg
    }};
}

/// `arg_mut!(attr)`: a struct that the program passes by address, to be read and written; none for null.
///
/// # Safety
/// The caller of the function around it guarantees that the pointer is null or points to an initialized struct of its type, and that no thread
/// accesses it before the function returns.
macro_rules! arg_mut {
    ($pointer:ident) => {{
        #[allow(unsafe_op_in_unsafe_fn, reason = "the section Safety of the macro")]
        let arg = $pointer.as_mut();
        arg
    }};
}

/// `this_id!(own.complete(id))`, `this_id!(is_for_datagrams(id))`: a call about an identifier whose library part the function around it has (`own`, `self`).
///
/// # Safety
/// `id` is not null, since its library part was found by it. The caller of the function around it guarantees that the identifier came from this
/// library, that no thread destroys it before the function returns, and that no other thread makes a call about it at the same time if it is synchronous.
macro_rules! this_id {
    ($own:ident.$method:ident($id:ident $(, $arg:expr)*)) => {{
        #[allow(unsafe_op_in_unsafe_fn, reason = "the section Safety of the macro")]
        let result = $own.$method($id $(, $arg)*);
        result
    }};
    ($($function:ident)::+($id:ident $(, $arg:expr)*)) => {{
        #[allow(unsafe_op_in_unsafe_fn, reason = "the section Safety of the macro")]
        let result = $($function)::+($id $(, $arg)*);
        result
    }};
}

pub(crate) use {arg_mut, arg_ref, handle, this_id};
