//! `verbena decode`: arguments and exit codes of the decoder. Exit codes: 0 clean, 1 a protocol violation, 2 bad usage or an unreadable
//! file.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use verbena_cli::decode::iscsi::Digests;
use verbena_cli::decode::{Options, Report, decode};

const CLEAN: u8 = 0;
const VIOLATION: u8 = 1;
const UNREADABLE: u8 = 2;

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  everything was read, without a protocol violation
  1  a protocol violation was seen; its line says which, where and on which stream
  2  bad usage, a file that cannot be read to its end (what could be read is shown), or a picture that cannot be written";

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena decode trace.pcap
  verbena decode --json trace.pcapng | jq 'select(.kind == \"Terminate\") | .cause'
  tcpdump -U -w - tcp port 7174 | verbena decode -
  verbena decode --plot sequence.svg trace.pcapng
  verbena decode --json disk.pcap | jq -r 'select(.cdb) | .cdb'
  verbena decode --json roce.pcap | jq 'select(.note or .kind == \"NAK\")'

In JSON every line has time (seconds since the first packet), stream, dir (i2r: from the initiator,
r2i: from the responder), kind, segments, len (payload bytes of the message) and offset (in the TCP
stream), and what the kind carries: stag and to, or qn, msn and mo, and so on. STags and tagged offsets
are strings in hexadecimal, because not every JSON parser has 64-bit numbers. Summaries appear only as text.
PDUs of iSCSI have words (all fields of the header), itt and ttt, the sequence numbers that they carry
(cmd_sn, exp_stat_sn, stat_sn, exp_cmd_sn, max_cmd_sn), cdb, and header_digest and data_digest.
Messages of RoCEv2 have opcode, qpn, psn, words (the fields of the headers), icrc_ok, and a note if the packet is repeated or others
are missing before it.";

#[derive(Args)]
pub(crate) struct Decode {
    /// The capture, or - for standard input
    file: PathBuf,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Show and judge only this stream
    #[arg(long, value_name = "N")]
    stream: Option<usize>,
    /// Look only at connections with this TCP port
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Show every FPDU as well
    #[arg(long)]
    segments: bool,
    /// Show offsets and the first payload bytes of each message
    #[arg(long, short)]
    verbose: bool,
    /// Draw sequence over time as SVG into this file, for each direction of each stream
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Treat connections to this TCP port as iSCSI, as those to port 3260
    #[arg(long, value_name = "PORT")]
    iscsi: Option<u16>,
    /// Follow iSCSI connections whose login is not in the capture, with these digests
    #[arg(long, value_name = "WHICH")]
    digests: Option<DigestChoice>,
}

/// Digests of iSCSI.
#[derive(Clone, Copy, ValueEnum)]
enum DigestChoice {
    None,
    Header,
    Data,
    Both,
}

impl DigestChoice {
    fn digests(self) -> Digests {
        Digests {
            header: matches!(self, DigestChoice::Header | DigestChoice::Both),
            data: matches!(self, DigestChoice::Data | DigestChoice::Both),
        }
    }
}

pub(crate) fn run(args: &Decode) -> u8 {
    let options = Options {
        json: args.json,
        stream: args.stream,
        port: args.port,
        segments: args.segments,
        verbose: args.verbose,
        iscsi: args.iscsi,
        digests: args.digests.map(DigestChoice::digests),
        plot: args.plot.is_some(),
    };
    let input: Box<dyn Read> = if args.file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        match File::open(&args.file) {
            Ok(file) => Box::new(file),
            Err(error) => return print_error(args, &format!("cannot be opened: {error}")),
        }
    };
    // On a terminal each line is written at once; to a file or a pipe they are buffered.
    let stdout = io::stdout().lock();
    let mut output: Box<dyn Write> = if stdout.is_terminal() {
        Box::new(stdout)
    } else {
        Box::new(BufWriter::new(stdout))
    };
    let decoded = decode(input, &mut output, options);
    if let (
        Some(file),
        Ok(Report {
            plot: Some(svg), ..
        }),
    ) = (&args.plot, &decoded)
        && let Err(error) = std::fs::write(file, svg)
    {
        eprintln!("verbena: cannot write {}: {error}", file.display());
        return UNREADABLE;
    }
    match decoded {
        Ok(Report {
            damage: Some(damage),
            ..
        }) => print_error(args, &damage.to_string()),
        Ok(report) if report.violations > 0 => VIOLATION,
        Ok(_) => CLEAN,
        // The reader closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => CLEAN,
        Err(error) => {
            eprintln!("verbena: cannot write: {error}");
            UNREADABLE
        }
    }
}

fn print_error(args: &Decode, what: &str) -> u8 {
    let name = if args.file == Path::new("-") {
        "standard input".into()
    } else {
        args.file.display().to_string()
    };
    eprintln!("verbena: {name} {what}");
    UNREADABLE
}
