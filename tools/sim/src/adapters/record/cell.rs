//! The record of memory that the requests of one queue pair write and read repeatedly.
//! Nothing else uses it, so the order of requests determines what each read returns.

/// Memory that the requests of one queue pair write and read, and nothing else does.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The queue pair.
    pub qp: usize,
    /// The memory.
    pub slot: usize,
    /// Its initial contents.
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
        /// Offset in the cell.
        at: usize,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Reads.
    Read {
        /// The request.
        op: usize,
        /// Offset in the cell.
        at: usize,
        /// The sink.
        slot: usize,
    },
}
