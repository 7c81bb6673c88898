//! Wireshark's iWARP dissectors and `verbena decode` find the same FPDUs in the same captures. Compared are ULPDU length, T, L, STag and TO
//! or QN, MSN and MO, opcode, and the fields of Read Requests and startup frames. Terminates are compared by header only: the dissector
//! parses the layout of RFC 5040, and siw's has its nibbles swapped.
//!
//! By default tshark does not reorder TCP segments that came out of order, and misses three of the 70 FPDUs of the capture with packet loss;
//! with the preference `tcp.reassemble_out_of_order` it finds them all.

use std::process::Command;

use serde_json::Value;

use super::support::{CAPTURES, capture, decode, fixture, text, tshark};

const FIELDS: [&str; 19] = [
    "tcp.srcport",
    "tcp.dstport",
    "iwarp_mpa.ulpdulength",
    "iwarp_ddp.tagged_flag",
    "iwarp_ddp.last_flag",
    "iwarp_rdma.opcode",
    "iwarp_ddp.stag",
    "iwarp_ddp.tagged_offset",
    "iwarp_ddp.qn",
    "iwarp_ddp.msn",
    "iwarp_ddp.mo",
    "iwarp_rdma.rdmardsz",
    "iwarp_rdma.sinkstag",
    "iwarp_rdma.srcto",
    "iwarp_mpa.rev",
    "iwarp_mpa.pdlength",
    "iwarp_mpa.crc_flag",
    "iwarp_mpa.marker_flag",
    "iwarp_mpa.rej_flag",
];

/// The columns of one packet, each the list of its values.
struct Row(Vec<Vec<String>>);

impl Row {
    fn all(&self, field: &str) -> &[String] {
        let at = FIELDS.iter().position(|f| *f == field).expect("field");
        &self.0[at]
    }

    fn number(&self, field: &str, at: usize) -> u64 {
        let value = &self.all(field)[at];
        match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).expect("hex"),
            None => value.parse().expect("decimal"),
        }
    }
}

/// tshark's rows, or `None` if there is no tshark and it is not required.
fn dissected(name: &str, preference: &str) -> Option<Vec<Row>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(fixture(&format!("{name}.pcap")));
    command.args(["-o", preference]);
    command.args("-T fields -E separator=; -E aggregator=, -E occurrence=a".split(' '));
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let rows = tshark(&mut command)?;
    let split = |list: &str| {
        let values = list.split(',').filter(|v| !v.is_empty());
        values.map(str::to_owned).collect()
    };
    let row = |line: &str| Row(line.split(';').map(split).collect());
    Some(rows.lines().map(row).collect())
}

/// A line per FPDU or startup frame, with its ports.
fn theirs(rows: &[Row]) -> Vec<String> {
    let mut out = Vec::new();
    for row in rows {
        let ports = format!(
            "{}>{}",
            row.all("tcp.srcport")[0],
            row.all("tcp.dstport")[0]
        );
        for at in 0..row.all("iwarp_mpa.rev").len() {
            out.push(format!(
                "{ports} startup rev {} pd {} crc {} markers {} reject {}",
                row.number("iwarp_mpa.rev", at),
                row.number("iwarp_mpa.pdlength", at),
                row.number("iwarp_mpa.crc_flag", at),
                row.number("iwarp_mpa.marker_flag", at),
                row.number("iwarp_mpa.rej_flag", at),
            ));
        }
        // Tagged and untagged fields are in separate columns, each in the order of its own FPDUs.
        let (mut tagged, mut untagged, mut reads) = (0, 0, 0);
        for at in 0..row.all("iwarp_mpa.ulpdulength").len() {
            let opcode = row.number("iwarp_rdma.opcode", at);
            let mut line = format!(
                "{ports} ulpdu {} opcode {opcode} last {}",
                row.number("iwarp_mpa.ulpdulength", at),
                row.number("iwarp_ddp.last_flag", at),
            );
            if row.number("iwarp_ddp.tagged_flag", at) == 1 {
                line += &format!(
                    " stag {:#010x} to {:#x}",
                    row.number("iwarp_ddp.stag", tagged),
                    row.number("iwarp_ddp.tagged_offset", tagged)
                );
                tagged += 1;
            } else {
                line += &format!(
                    " qn {} msn {} mo {}",
                    row.number("iwarp_ddp.qn", untagged),
                    row.number("iwarp_ddp.msn", untagged),
                    row.number("iwarp_ddp.mo", untagged)
                );
                untagged += 1;
            }
            if opcode == 1 {
                line += &format!(
                    " asks {} into {:#010x} from {:#x}",
                    row.number("iwarp_rdma.rdmardsz", reads),
                    row.number("iwarp_rdma.sinkstag", reads),
                    row.number("iwarp_rdma.srcto", reads)
                );
                reads += 1;
            }
            out.push(line);
        }
    }
    out
}

/// The same lines from our own output.
fn ours(records: &[Value]) -> Vec<String> {
    let mut ports: Vec<[String; 2]> = Vec::new();
    let mut out: Vec<String> = Vec::new();
    let port = |address: &str| address.rsplit(':').next().expect("port").to_owned();
    let bit = |record: &Value, field: &str| u8::from(record[field] == true);
    for record in records {
        let stream = record["stream"].as_u64().expect("stream") as usize;
        let kind = text(record, "kind");
        if kind == "MpaRequest" {
            ports.push([port(text(record, "from")), port(text(record, "to"))]);
        }
        let [a, b] = &ports[stream];
        let ends = if record["dir"] == "i2r" {
            format!("{a}>{b}")
        } else {
            format!("{b}>{a}")
        };
        if kind.starts_with("Mpa") {
            let block = if record["ird"].is_null() { 0 } else { 4 };
            out.push(format!(
                "{ends} startup rev {} pd {} crc {} markers {} reject {}",
                record["revision"],
                record["len"].as_u64().expect("len") + block,
                bit(record, "crc"),
                bit(record, "markers"),
                bit(record, "reject"),
            ));
        } else if kind == "Fpdu" {
            let place = if record["tagged"] == true {
                format!("stag {} to {}", text(record, "stag"), text(record, "to"))
            } else {
                let (qn, msn, mo) = (&record["qn"], &record["msn"], &record["mo"]);
                format!("qn {qn} msn {msn} mo {mo}")
            };
            let opcode = opcode(text(record, "opcode"));
            let (ulpdu, last) = (&record["ulpdu"], bit(record, "last"));
            out.push(format!(
                "{ends} ulpdu {ulpdu} opcode {opcode} last {last} {place}"
            ));
        } else if kind == "ReadRequest" {
            // The message follows its only FPDU.
            let line = out.last_mut().expect("its FPDU");
            *line += &format!(
                " asks {} into {} from {}",
                record["size"],
                text(record, "sink_stag"),
                text(record, "source_to")
            );
        }
    }
    out
}

fn opcode(name: &str) -> u8 {
    let names = [
        "Write",
        "ReadRequest",
        "ReadResponse",
        "Send",
        "SendInv",
        "SendSe",
        "SendSeInv",
        "Terminate",
    ];
    names.iter().position(|n| *n == name).expect("opcode") as u8
}

/// Lines by direction, in order: across directions a packet that completes several FPDUs has no fixed position.
fn by_direction(mut lines: Vec<String>) -> Vec<String> {
    lines.sort_by_key(|line| line.split(' ').next().map(str::to_owned));
    lines
}

#[test]
fn tshark_agrees_on_every_capture_fpdu_by_fpdu() {
    for name in CAPTURES {
        let Some(rows) = dissected(name, "tcp.reassemble_out_of_order:TRUE") else {
            return;
        };
        let run = decode(&capture(name), &["--json", "--segments"]);
        let (theirs, ours) = (
            by_direction(theirs(&rows)),
            by_direction(ours(&run.records())),
        );
        println!(
            "{name}: {} lines of tshark, {} of ours",
            theirs.len(),
            ours.len()
        );
        assert_eq!(theirs, ours, "{name}");
    }
}

#[test]
fn without_reassembly_tshark_loses_fpdus_and_invents_none() {
    let name = "21_rping_v2_crc_loss";
    let Some(rows) = dissected(name, "tcp.reassemble_out_of_order:FALSE") else {
        return;
    };
    let run = decode(&capture(name), &["--json", "--segments"]);
    let ours = ours(&run.records());
    let theirs = theirs(&rows);
    assert!(theirs.len() < ours.len());
    assert!(theirs.iter().all(|line| ours.contains(line)));
}
