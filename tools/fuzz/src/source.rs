//! An input read as a sequence of decisions: bytes, numbers and slices taken from its front.
//! Once the input is used up, numbers are zero and slices are empty, so that a shorter input is a simpler run.

/// What is left of an input.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    rest: &'a [u8],
}

impl<'a> Source<'a> {
    /// All of an input.
    pub fn new(data: &'a [u8]) -> Source<'a> {
        Source { rest: data }
    }

    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    /// The next two bytes, big-endian.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    /// The next four bytes, big-endian.
    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    /// The next eight bytes, big-endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let slice = self.slice(N);
        array[..slice.len()].copy_from_slice(slice);
        array
    }

    /// The next `len` bytes, or as many as there are.
    pub fn slice(&mut self, len: usize) -> &'a [u8] {
        let (front, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        front
    }

    /// Everything that is left.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }
}

/// Bit `n` of a byte of switches.
pub fn bit(byte: u8, n: u32) -> bool {
    byte >> n & 1 != 0
}
