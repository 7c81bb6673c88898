//! `verbena devinfo --events`: the settings of events and interrupts and the redirection table, or the interrupt counters of a running program.
//! The counters are those of `verbena events --counters`, as a table; as JSON they are the same objects.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use verbena::events::Redirection;
use verbena::{Config, Device};
use verbena_cli::events::counters;

/// The settings that concern events.
const SETTINGS: [&str; 14] = [
    "handlers",
    "vectors",
    "interrupt_arrangement",
    "interrupt_routing",
    "interrupt_hash_key",
    "interrupt_table",
    "completion_vector_cpus",
    "event_entry",
    "event_queue",
    "event_entries",
    "event_moderation",
    "event_acknowledge",
    "link_events",
    "monitor",
];

/// The columns of the counters, as in the lines of the monitor.
const COLUMNS: [&str; 6] = [
    "interrupts",
    "events",
    "coalesced",
    "register_writes",
    "register_reads",
    "code",
];

/// One row per vector that was used, and the total, for each adapter of the process; or one JSON object for each.
pub(super) fn show_counters(pid: u32, json: bool) -> Result<(), Box<dyn std::error::Error>> {
    let lines = counters(pid)?;
    let mut out = io::stdout().lock();
    if json {
        for line in lines {
            writeln!(out, "{}", line.json())?;
        }
        return Ok(());
    }
    writeln!(out, "adapter vector {}", cells(str::to_owned))?;
    for line in &lines {
        let vector = line.field("vector").unwrap_or("total");
        let cells = cells(|column| line.field(column).unwrap_or("-").to_owned());
        writeln!(out, "{:>7} {vector:>6} {cells}", line.adapter())?;
    }
    Ok(())
}

fn cells(cell: impl Fn(&str) -> String) -> String {
    let all: Vec<String> = COLUMNS
        .iter()
        .map(|column| format!("{:>15}", cell(column)))
        .collect();
    all.join(" ")
}

/// The settings of events, and the redirection table that follows from them.
pub(super) fn show_configuration(json: bool) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load()?;
    let rows = config.describe();
    let rows = rows.iter().filter(|row| SETTINGS.contains(&row.key));
    let device = Device::with(config.clone())?;
    let table = device.interrupt_table();
    let mut out = io::stdout().lock();
    if json {
        let settings: Map<String, Value> = rows
            .map(|row| (row.key.to_owned(), json!(row.value)))
            .collect();
        let entry = |entry: &Redirection| json!({"processor": entry.processor, "channel": entry.channel, "queue": entry.queue});
        let table: Vec<Value> = table.iter().map(entry).collect();
        writeln!(out, "{}", json!({"settings": settings, "table": table}))?;
        return Ok(());
    }
    writeln!(out, "settings")?;
    for row in rows {
        writeln!(out, "  {:<22} {:<36} {}", row.key, row.value, row.source)?;
    }
    writeln!(out, "\nredirection table")?;
    for (at, entry) in table.iter().enumerate() {
        let Redirection {
            processor,
            channel,
            queue,
        } = entry;
        writeln!(
            out,
            "  {at:<3} processor {processor}, channel {channel}, event queue {queue}"
        )?;
    }
    Ok(())
}
