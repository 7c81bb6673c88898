//! `verbena devinfo`: the adapter as programs see it, and the settings that made it so.
//! It promises that every setting is listed with its value and its origin, secrets hidden.
//! It refuses to change anything.

use std::io::{self, Write};

use clap::Args;
use verbena::{Config, Device};

#[derive(Args)]
pub(crate) struct Devinfo {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Devinfo) -> u8 {
    match try_run(args) {
        Ok(()) => 0,
        // The reader has seen enough.
        Err(error) if is_closed_pipe(&*error) => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn is_closed_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn try_run(args: &Devinfo) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load()?;
    let rows = config.describe();
    let device = Device::with(config)?;
    let limits = device.attributes();
    let (handlers, processors) = (device.handler_limit(), device.processors()?);
    // A setting that fits no interface is shown as what it leads to; the rest is worth seeing all the same.
    let addresses = device.addresses().map(|all| {
        let all = all.iter().map(ToString::to_string);
        all.collect::<Vec<String>>()
    });
    let ports = rows.iter().find(|row| row.key == "ports");
    let ports = ports.map_or("", |row| row.value.as_str());
    let mut out = io::stdout().lock();
    if args.json {
        let settings: Vec<_> = rows
            .iter()
            .map(|row| serde_json::json!({"key": row.key, "value": row.value, "source": row.source.to_string()}))
            .collect();
        let all = serde_json::json!({
            "addresses": addresses.unwrap_or_default(),
            "ports": ports,
            "handlers": handlers,
            "processors": processors,
            "limits": format!("{limits:?}"),
            "settings": settings,
        });
        serde_json::to_writer_pretty(&mut out, &all)?;
        writeln!(out)?;
        return Ok(());
    }
    let addresses = match addresses {
        Ok(all) => all.join(", "),
        Err(error) => format!("none: {error}"),
    };
    let processors: Vec<String> = processors.iter().map(ToString::to_string).collect();
    writeln!(out, "adapter")?;
    for (what, value) in [
        ("addresses", addresses.as_str()),
        ("ports", ports),
        ("handlers", &handlers.to_string()),
        ("processors", &processors.join(", ")),
    ] {
        writeln!(out, "  {what:<18} {value}")?;
    }
    writeln!(out, "\nlimits\n  {limits:?}\n\nsettings")?;
    for row in rows {
        writeln!(out, "  {:<18} {:<24} {}", row.key, row.value, row.source)?;
    }
    Ok(())
}
