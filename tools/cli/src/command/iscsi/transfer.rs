//! `verbena iscsi read`, `write` and `copy`: bytes between disks, files and pipes. A write to a disk has reached the medium when the command
//! ends, and an input that does not fit the disk is an error. Copies between two files are rejected.

use std::fs::File;
use std::io::{self, IsTerminal, Read as _, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use verbena::Memory;
use verbena_storage::sweep::{self, CompareSink, FdSink, FdSource, TransferOptions};
use verbena_storage::{Address, AddressError, Blocks, Done, Error, Geometry, Request, Stop, Unit};

use super::meter::Meter;
use super::size::bytes;
use super::url::Url;
use super::{BoxError, Common, device, stop};

/// How passes are made.
#[derive(Args)]
struct TransferArgs {
    /// Bytes per request, with k or m; the disk's optimal transfer length if not given
    #[arg(long, short, default_value = "0", hide_default_value = true, value_parser = bytes)]
    size: u64,
    /// Print errors only
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    common: Common,
}

impl TransferArgs {
    fn pace(&self) -> TransferOptions {
        TransferOptions {
            depth: self.common.depth.into(),
            piece: u32::try_from(self.size).unwrap_or(u32::MAX),
        }
    }

    fn meter<'s>(&self, what: &'static str, stop: &'s Stop) -> Meter<'s> {
        Meter::new(what, stop, self.quiet)
    }
}

#[derive(Args)]
pub(super) struct Read {
    /// The disk
    #[arg(value_name = "URL", value_parser = Url::<Address>::new())]
    address: Address,
    /// The first byte, with k, m, g or t
    #[arg(long, default_value = "0", value_parser = bytes)]
    offset: u64,
    /// How many bytes, with k, m, g or t; up to the end of the disk if not given
    #[arg(long, value_parser = bytes)]
    length: Option<u64>,
    /// The output file; - is standard output
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    transfer: TransferArgs,
}

#[derive(Args)]
pub(super) struct Write {
    /// The disk
    #[arg(value_name = "URL", value_parser = Url::<Address>::new())]
    address: Address,
    /// The first byte that is written, with k, m, g or t
    #[arg(long, default_value = "0", value_parser = bytes)]
    offset: u64,
    /// The input file; - is standard input
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    input: PathBuf,
    /// Write every request to stable storage (FUA) instead of flushing once at the end
    #[arg(long)]
    fua: bool,
    /// Read everything back and compare; the input must be a file
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    transfer: TransferArgs,
}

#[derive(Args)]
pub(super) struct Copy {
    /// A disk, a file, or - for standard input
    #[arg(value_parser = Url::<Side>::new())]
    from: Side,
    /// A disk, a file, or - for standard output
    #[arg(value_parser = Url::<Side>::new())]
    to: Side,
    /// Read the copy back and compare
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    transfer: TransferArgs,
}

/// One end of a copy.
#[derive(Debug, Clone)]
enum Side {
    Disk(Address),
    File(PathBuf),
}

impl FromStr for Side {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Side, AddressError> {
        match text.contains("://") {
            true => text.parse().map(Side::Disk),
            false => Ok(Side::File(text.into())),
        }
    }
}

pub(super) fn read(args: &Read) -> Result<(), BoxError> {
    let mut unit = args.transfer.common.unit(&args.address)?;
    let stop = stop()?;
    let end = match args.length {
        Some(length) => args.offset.saturating_add(length),
        None => unit.geometry().bytes(),
    };
    let range = args.offset..end;
    // Before an existing file is truncated.
    sweep::check(&unit.geometry(), &range)?;
    let output = output(&args.output)?;
    let mut meter = args.transfer.meter("read", &stop);
    let done = sweep::read(
        &mut unit,
        range,
        &mut FdSink(output.as_fd()),
        args.transfer.pace(),
        &mut |progress| meter.update(progress),
    );
    meter.finish(done)?;
    Ok(unit.close()?)
}

pub(super) fn write(args: &Write) -> Result<(), BoxError> {
    let input = Input::open(&args.input)?;
    if args.verify && input.len.is_none() {
        return Err("--verify reads the input a second time: --input must be a file".into());
    }
    let mut unit = args.transfer.common.unit(&args.address)?;
    let stop = stop()?;
    write_disk(
        &mut unit,
        args.offset,
        input,
        args.fua,
        args.verify,
        &args.transfer,
        &stop,
    )?;
    Ok(unit.close()?)
}

pub(super) fn copy(args: &Copy) -> Result<(), BoxError> {
    match (&args.from, &args.to) {
        (Side::File(_), Side::File(_)) => {
            Err("neither side is a disk: one of them must be iscsi://…".into())
        }
        (Side::File(path), Side::Disk(address)) => {
            let input = Input::open(path)?;
            if args.verify && input.len.is_none() {
                return Err("--verify reads the input a second time: it must be a file".into());
            }
            let mut unit = args.transfer.common.unit(address)?;
            let stop = stop()?;
            write_disk(
                &mut unit,
                0,
                input,
                false,
                args.verify,
                &args.transfer,
                &stop,
            )?;
            Ok(unit.close()?)
        }
        (Side::Disk(address), Side::File(path)) => {
            let mut unit = args.transfer.common.unit(address)?;
            let stop = stop()?;
            copy_to_file(&mut unit, path, args.verify, &args.transfer, &stop)?;
            Ok(unit.close()?)
        }
        (Side::Disk(from), Side::Disk(to)) => {
            let secret = &args.transfer.common.secret;
            let [from, to] = [secret.complete(from)?, secret.complete(to)?];
            let (device, options) = (device(&[&from, &to])?, args.transfer.common.options());
            let mut from = Unit::open(&device, &from, options.clone())?;
            let mut to = Unit::open(&device, &to, options)?;
            let stop = stop()?;
            copy_disk(&mut from, &mut to, args.verify, &args.transfer, &stop)?;
            from.close()?;
            Ok(to.close()?)
        }
    }
}

/// Writes the input to a disk.
fn write_disk(
    unit: &mut Unit,
    offset: u64,
    mut input: Input,
    fua: bool,
    verify: bool,
    how: &TransferArgs,
    stop: &Stop,
) -> Result<(), BoxError> {
    let end = match input.len {
        Some(len) => offset.saturating_add(len),
        None => unit.geometry().bytes(),
    };
    let mut meter = how.meter("written", stop);
    let written = sweep::write(
        &mut FuaDisk { unit, fua },
        offset..end,
        &mut FdSource(input.file.as_fd()),
        how.pace(),
        &mut |progress| meter.update(progress),
    );
    let written = meter.finish(written)?;
    if !fua {
        unit.flush()?;
    }
    // Only if the length is unknown, as of a pipe. A file that has grown meanwhile is written up to its former length.
    let full = offset + written == end && input.len.is_none();
    if full && input.file.read(&mut [0])? > 0 {
        let limit = unit.geometry().bytes();
        return Err(
            format!("the input has more bytes than the disk, which ends at {limit}").into(),
        );
    }
    if input.len.is_some_and(|len| written < len) {
        let (got, wanted) = (written, end - offset);
        return Err(Error::Short { got, wanted }.into());
    }
    if verify {
        input.file.seek(SeekFrom::Start(0))?;
        compare(unit, offset, written, input.file, how, stop)?;
    }
    Ok(())
}

/// Copies a disk to a file.
fn copy_to_file(
    unit: &mut Unit,
    path: &Path,
    verify: bool,
    how: &TransferArgs,
    stop: &Stop,
) -> Result<(), BoxError> {
    if verify && is_stdio(path) {
        return Err("--verify reads the copy back: it must be a file".into());
    }
    let end = unit.geometry().bytes();
    let output = output(path)?;
    let mut meter = how.meter("read", stop);
    let done = sweep::read(
        unit,
        0..end,
        &mut FdSink(output.as_fd()),
        how.pace(),
        &mut |progress| meter.update(progress),
    );
    meter.finish(done)?;
    if verify {
        compare(unit, 0, end, File::open(path)?, how, stop)?;
    }
    Ok(())
}

/// Copies a disk to another.
fn copy_disk(
    from: &mut Unit,
    to: &mut Unit,
    verify: bool,
    how: &TransferArgs,
    stop: &Stop,
) -> Result<(), BoxError> {
    let end = from.geometry().bytes();
    let mut meter = how.meter("copied", stop);
    let watch = &mut |progress| meter.update(progress);
    let done = sweep::copy(from, 0..end, to, 0, how.pace(), watch);
    meter.finish(done)?;
    to.flush()?;
    if verify {
        let mut meter = how.meter("compared", stop);
        let watch = &mut |progress| meter.update(progress);
        let done = sweep::compare(from, 0..end, to, 0, how.pace(), watch);
        meter.finish(done)?;
    }
    Ok(())
}

/// Compares a part of a disk with a file.
fn compare(
    unit: &mut Unit,
    offset: u64,
    len: u64,
    file: File,
    how: &TransferArgs,
    stop: &Stop,
) -> Result<(), BoxError> {
    let mut meter = how.meter("compared", stop);
    let done = sweep::read(
        unit,
        offset..offset + len,
        &mut CompareSink::new(file),
        how.pace(),
        &mut |progress| meter.update(progress),
    );
    meter.finish(done)?;
    Ok(())
}

fn is_stdio(path: &Path) -> bool {
    path == Path::new("-")
}

/// A source of bytes.
struct Input {
    file: File,
    /// Its length, if it is a regular file.
    len: Option<u64>,
}

impl Input {
    fn open(path: &Path) -> Result<Input, BoxError> {
        if is_stdio(path) {
            let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
            return Ok(Input { file, len: None });
        }
        let named = |error| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(named)?;
        let about = file.metadata().map_err(named)?;
        let len = about.is_file().then_some(about.len());
        Ok(Input { file, len })
    }
}

fn output(path: &Path) -> Result<OwnedFd, BoxError> {
    if is_stdio(path) {
        if io::stdout().is_terminal() {
            return Err("refusing to write binary data to a terminal; use --output FILE".into());
        }
        return Ok(io::stdout().as_fd().try_clone_to_owned()?);
    }
    let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(file.into())
}

/// A disk whose writes have FUA set, if that is wanted.
struct FuaDisk<'u> {
    unit: &'u mut Unit,
    fua: bool,
}

impl Blocks for FuaDisk<'_> {
    fn geometry(&self) -> Geometry {
        self.unit.geometry()
    }

    fn memory(&mut self, len: usize) -> Result<Memory, Error> {
        self.unit.memory(len)
    }

    fn submit(&mut self, id: u64, mut request: Request) -> Result<(), Error> {
        if let Request::Write { fua, .. } = &mut request {
            *fua |= self.fua;
        }
        self.unit.submit(id, request)
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), Error> {
        self.unit.poll(done)
    }

    fn wait(&mut self, beside: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<(), Error> {
        self.unit.wait(beside, timeout)
    }

    fn arm(&mut self) -> Result<Option<BorrowedFd<'_>>, Error> {
        self.unit.arm()
    }

    fn depth(&self) -> usize {
        self.unit.depth()
    }
}
