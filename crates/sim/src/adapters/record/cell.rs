//! Memory that the requests of one queue pair write and read again, as it is written down.
//! Nothing else uses it, so the order of requests says what each read returns.

/// Memory that the requests of one queue pair write and read, and nothing else does.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The queue pair.
    pub qp: usize,
    /// The memory.
    pub slot: usize,
    /// What it held first.
    pub first: Vec<u8>,
    /// What was posted, in posting order.
    pub uses: Vec<CellUse>,
}

/// A request on a cell.
#[derive(Debug, Clone)]
pub enum CellUse {
    /// Writes these bytes.
    Write {
        /// The request.
        op: usize,
        /// Where in the cell.
        at: usize,
        /// What.
        bytes: Vec<u8>,
    },
    /// Reads.
    Read {
        /// The request.
        op: usize,
        /// Where in the cell.
        at: usize,
        /// Where the bytes go.
        slot: usize,
    },
}
