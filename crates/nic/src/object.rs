//! The kinds of objects that a function numbers, for limits and for errors. Their text is the one that users see.

use core::fmt;

/// The objects of a function that have numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Object {
    /// A protection domain.
    Pd,
    /// A completion queue.
    Cq,
    /// A shared receive queue.
    Srq,
    /// A shared send queue.
    Ssq,
    /// A queue pair.
    Qp,
    /// An entry of the translation and protection table.
    Stag,
    /// A function.
    Function,
    /// A control queue pair.
    Control,
    /// An event queue.
    EventQueue,
    /// An interrupt vector.
    Vector,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Object::Pd => "protection domain",
            Object::Cq => "completion queue",
            Object::Srq => "shared receive queue",
            Object::Ssq => "shared send queue",
            Object::Qp => "queue pair",
            Object::Stag => "STag",
            Object::Function => "function",
            Object::Control => "control queue pair",
            Object::EventQueue => "event queue",
            Object::Vector => "vector",
        })
    }
}
