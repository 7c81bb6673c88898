//! After everything was failed and deregistered nothing is left: no request, no receive, no entry of a table.
//! No completion was for an object that does not exist.

use crate::adapters::record::Record;

pub(super) fn check(record: &Record) -> Result<(), String> {
    for (qp, queue_pair) in record.qps.iter().enumerate() {
        if queue_pair.left != (0, 0) {
            let (sends, receives) = queue_pair.left;
            return Err(format!(
                "queue pair {qp} failed and still has {sends} sends and {receives} receives"
            ));
        }
    }
    if let Some(host) = record.entries_left.iter().position(|n| *n != 0) {
        let left = record.entries_left[host];
        return Err(format!("host {host} still has {left} regions or windows"));
    }
    if record.strays > 0 {
        return Err(format!(
            "{} completions for unknown queue pairs",
            record.strays
        ));
    }
    Ok(())
}
