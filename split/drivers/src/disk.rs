//! Block requests of a host to a disk of its unit, byte by byte (docs/split.md, "Disks"). Each request and each reply is one packet of the
//! data channel: a head of [`HEAD`] bytes, then data. Heads with unknown codes or with bits that must be zero are not accepted.

/// Bytes of the head of a request and of a reply.
pub const HEAD: usize = 24;
/// Bytes of a block.
pub const BLOCK_SIZE: u32 = 512;
/// Most data of one request: the length of its packet fits the 16 bits of immediate data (P7).
pub const MAX_DATA: u32 = 60 << 10;
/// Most requests of a host in progress; further ones wait in the packets that it has sent.
pub const MAX_DEPTH: usize = 64;
/// Bytes of the longest name of a disk.
pub const MAX_DISK_NAME: usize = 64;

const READ: u8 = 1;
const WRITE: u8 = 2;
const FLUSH: u8 = 3;
const REPLY: u8 = 0x80;
const FUA: u8 = 1;

const _: () = assert!(MAX_DATA as usize + HEAD < 1 << 16 && MAX_DATA.is_multiple_of(BLOCK_SIZE));

/// Most data of one request in packets of this length; 0 if not even a block fits.
pub const fn max_data(packet: u32) -> u32 {
    let fits = packet.saturating_sub(HEAD as u32);
    let fits = if fits < MAX_DATA { fits } else { MAX_DATA };
    fits / BLOCK_SIZE * BLOCK_SIZE
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockOperation {
    /// Reads blocks; the data is in the reply.
    Read,
    /// Writes blocks; the data follows the head.
    Write {
        /// The reply is sent when the data is on stable storage.
        fua: bool,
    },
    /// Brings all writes that were answered to stable storage.
    Flush,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRequest {
    /// Chosen by the host, and repeated in the reply.
    pub context: u64,
    /// The operation.
    pub operation: BlockOperation,
    /// The first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
}

/// A packet that is no valid request, and the context for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidBlockRequest {
    /// As it came.
    pub context: u64,
}

impl BlockRequest {
    /// Operation (1), flags (1: 1 FUA), zero (2), length (4), context (8), offset (8).
    pub fn to_bytes(self) -> [u8; HEAD] {
        let (operation, flags) = match self.operation {
            BlockOperation::Read => (READ, 0),
            BlockOperation::Write { fua } => (WRITE, u8::from(fua) * FUA),
            BlockOperation::Flush => (FLUSH, 0),
        };
        head([operation, flags], self.len, self.context, self.offset)
    }

    /// Parses the head of a packet of `packet` bytes, whose length must be that of the request.
    pub fn parse(bytes: &[u8; HEAD], packet: usize) -> Result<BlockRequest, InvalidBlockRequest> {
        let ([operation, flags], zero, len, context, offset) = fields(bytes);
        let invalid = InvalidBlockRequest { context };
        let operation = match (operation, flags) {
            (READ, 0) => BlockOperation::Read,
            (WRITE, 0 | FUA) => BlockOperation::Write { fua: flags == FUA },
            (FLUSH, 0) if len == 0 && offset == 0 => BlockOperation::Flush,
            _ => return Err(invalid),
        };
        let request = BlockRequest {
            context,
            operation,
            offset,
            len,
        };
        match zero == [0; 2] && packet == HEAD + request.data_len() {
            true => Ok(request),
            false => Err(invalid),
        }
    }

    /// Bytes of data after the head.
    pub fn data_len(&self) -> usize {
        match self.operation {
            BlockOperation::Write { .. } => self.len as usize,
            BlockOperation::Read | BlockOperation::Flush => 0,
        }
    }

    /// Checks it against the disk: whole blocks, within the disk, no longer than allowed, and no write to a read-only disk.
    pub fn check(&self, disk: &DiskInfo) -> Result<(), BlockStatus> {
        let write = match self.operation {
            BlockOperation::Flush => return Ok(()),
            BlockOperation::Read => false,
            BlockOperation::Write { .. } => true,
        };
        if write && disk.read_only {
            return Err(BlockStatus::ReadOnly);
        }
        let block = disk.block_size.max(1);
        let whole = self.offset.is_multiple_of(block.into()) && self.len.is_multiple_of(block);
        if self.len == 0 || self.len > disk.max_data || !whole {
            return Err(BlockStatus::Invalid);
        }
        let end = self.offset.checked_add(self.len.into());
        match (end.is_some_and(|end| end <= disk.bytes()), write) {
            (true, _) => Ok(()),
            (false, true) => Err(BlockStatus::NoSpace),
            (false, false) => Err(BlockStatus::Invalid),
        }
    }
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockStatus {
    /// Done.
    #[error("done")]
    Ok,
    /// Malformed, not in whole blocks, too long, or beyond the end.
    #[error("the request is invalid")]
    Invalid,
    /// A write to a read-only disk.
    #[error("the disk is read-only")]
    ReadOnly,
    /// A write beyond the end.
    #[error("the write reaches beyond the end of the disk")]
    NoSpace,
    /// The unit could not read or write its storage.
    #[error("the unit's storage failed")]
    Io,
}

impl BlockStatus {
    const ALL: [BlockStatus; 5] = [
        BlockStatus::Ok,
        BlockStatus::Invalid,
        BlockStatus::ReadOnly,
        BlockStatus::NoSpace,
        BlockStatus::Io,
    ];

    fn code(self) -> u8 {
        let at = BlockStatus::ALL.iter().position(|status| *status == self);
        at.unwrap_or_default() as u8
    }
}

/// A reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockReply {
    /// That of the request.
    pub context: u64,
    /// The result.
    pub status: BlockStatus,
    /// Bytes of data after the head: those of a successful read.
    pub len: u32,
}

impl BlockReply {
    /// 0x80 (1), status (1), zero (2), length of the data (4), context (8), zero (8).
    pub fn to_bytes(self) -> [u8; HEAD] {
        head([REPLY, self.status.code()], self.len, self.context, 0)
    }

    /// Parses the head of a packet of `packet` bytes; `None` if it is not a reply of that length.
    pub fn parse(bytes: &[u8; HEAD], packet: usize) -> Option<BlockReply> {
        let ([code, status], zero, len, context, rest) = fields(bytes);
        let status = *BlockStatus::ALL.get(usize::from(status))?;
        let valid = code == REPLY && zero == [0; 2] && rest == 0;
        let whole = packet == HEAD + len as usize;
        (valid && whole).then_some(BlockReply {
            context,
            status,
            len,
        })
    }
}

fn head(codes: [u8; 2], len: u32, context: u64, offset: u64) -> [u8; HEAD] {
    let [len, context, offset] = [u64::from(len), context, offset].map(u64::to_be_bytes);
    let mut bytes = [0; HEAD];
    let fields = codes.iter().chain(&[0; 2]).chain(&len[4..]);
    for (to, from) in bytes.iter_mut().zip(fields.chain(&context).chain(&offset)) {
        *to = *from;
    }
    bytes
}

/// Codes, what must be zero, length, context, and the last eight bytes.
fn fields(bytes: &[u8; HEAD]) -> ([u8; 2], [u8; 2], u32, u64, u64) {
    let number = |from: usize, len: usize| {
        let digits = bytes.iter().skip(from).take(len);
        digits.fold(0, |number: u64, byte| number << 8 | u64::from(*byte))
    };
    let [operation, flags, zero, more, ..] = *bytes;
    (
        [operation, flags],
        [zero, more],
        number(4, 4) as u32,
        number(8, 8),
        number(16, 8),
    )
}

/// The properties of a disk, the answer to `open-disk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskInfo {
    /// Bytes of a block.
    pub block_size: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Number of blocks.
    pub blocks: u64,
    /// Most data of one request: whole blocks.
    pub max_data: u32,
}

impl DiskInfo {
    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_size.into())
    }

    /// Block size (4), flags (4: 1 read-only), blocks (8), most data of a request (4), zero (4).
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.block_size.to_be_bytes().to_vec();
        bytes.extend(u32::from(self.read_only).to_be_bytes());
        bytes.extend(self.blocks.to_be_bytes());
        bytes.extend(self.max_data.to_be_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    /// Parses it; unknown flags are ignored. `None` if it is no disk that a host can use.
    pub fn parse(data: &[u8]) -> Option<DiskInfo> {
        let bytes: &[u8; HEAD] = data.try_into().ok()?;
        let word = |at: usize| {
            let word = bytes.get(at..)?.first_chunk();
            word.map(|word| u32::from_be_bytes(*word))
        };
        let (block_size, max_data) = (word(0)?, word(16)?);
        let blocks = u64::from(word(8)?) << 32 | u64::from(word(12)?);
        let usable = block_size.is_power_of_two() && (512..=65536).contains(&block_size);
        let whole = max_data > 0 && max_data <= MAX_DATA && max_data.is_multiple_of(block_size);
        (usable && whole && blocks > 0).then_some(DiskInfo {
            block_size,
            read_only: word(4)? & 1 == 1,
            blocks,
            max_data,
        })
    }
}

#[cfg(test)]
mod tests;
