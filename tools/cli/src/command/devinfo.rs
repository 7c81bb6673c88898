//! `verbena devinfo`: the adapter as programs see it, and its settings; or the objects or interrupts of a running program's adapters. Every
//! setting is listed with its value and its origin; secrets are hidden.

mod events;
mod profile;

use std::collections::BTreeMap;
use std::io::{self, Write};

use clap::Args;
use verbena::function::{Attributes, HostMap};
use verbena::{Config, Device};

use super::link::Link;

#[derive(Args)]
pub(crate) struct Devinfo {
    /// Show the queue pairs, completion queues and shared receive queues of this process instead
    #[arg(conflicts_with = "profile")]
    pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show the adapter's logical devices and their maps instead
    #[arg(long)]
    profile: bool,
    /// Show how events and interrupts are configured instead; with a process, what its interrupts have cost so far, per vector
    #[arg(long, conflicts_with = "profile")]
    events: bool,
}

pub(crate) fn run(args: &Devinfo) -> u8 {
    match try_run(args) {
        Ok(()) => 0,
        // The reader closed the pipe.
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
    match args.pid {
        Some(pid) if args.events => return events::show_counters(pid, args.json),
        Some(pid) => return show_objects(pid, args.json),
        None if args.events => return events::show_configuration(args.json),
        None => {}
    }
    let config = Config::load()?;
    let rows = config.describe();
    let links = super::link::links(&config)?;
    let device = Device::with(config)?;
    let attributes = device.attributes();
    if args.profile {
        return show_profile(&device, args.json);
    }
    let (handlers, processors) = (device.handler_limit(), device.processors()?);
    // A setting that matches no interface is shown as an error; the rest is still shown.
    let addresses = device.addresses().map(|all| {
        let all = all.iter().map(ToString::to_string);
        all.collect::<Vec<String>>()
    });
    let setting = |key: &str| {
        let row = rows.iter().find(|row| row.key == key);
        row.map_or("", |row| row.value.as_str())
    };
    let ports = setting("ports");
    let mut out = io::stdout().lock();
    if args.json {
        let settings: Vec<_> = rows
            .iter()
            .map(|row| serde_json::json!({"key": row.key, "value": row.value, "source": row.source.to_string()}))
            .collect();
        let all = serde_json::json!({
            "name": setting("name"),
            "personality": setting("personality"),
            "addresses": addresses.unwrap_or_default(),
            "links": links.iter().map(Link::ibdev2netdev).collect::<Vec<_>>(),
            "ports": ports,
            "handlers": handlers,
            "processors": processors,
            "limits": limits(attributes).map(|limit| (limit.key, limit.value)).into_iter().collect::<BTreeMap<_, _>>(),
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
        ("name", setting("name")),
        ("personality", setting("personality")),
        ("addresses", addresses.as_str()),
        ("ports", ports),
        ("handlers", &handlers.to_string()),
        ("processors", &processors.join(", ")),
    ] {
        writeln!(out, "  {what:<18} {value}")?;
    }
    for link in &links {
        writeln!(out, "  {:<18} {}", "link", link.ibdev2netdev())?;
    }
    writeln!(out, "\nlimits")?;
    for limit in limits(attributes) {
        writeln!(out, "  {:<34} {:>10}", limit.label, limit.value)?;
    }
    writeln!(out, "\nsettings")?;
    for row in &rows {
        writeln!(out, "  {:<18} {:<24} {}", row.key, row.value, row.source)?;
    }
    Ok(())
}

fn show_profile(device: &Device, json: bool) -> Result<(), Box<dyn std::error::Error>> {
    let profile = device.config().device_profile()?;
    let host = HostMap::plan(&profile, &device.attributes().shares)?;
    let mut out = io::stdout().lock();
    if !json {
        profile::write(&mut out, &profile, &host)?;
        return Ok(());
    }
    serde_json::to_writer_pretty(&mut out, &profile::json(&profile, &host))?;
    writeln!(out)?;
    Ok(())
}

/// One block of lines for each object, or one JSON object per line.
fn show_objects(pid: u32, json: bool) -> Result<(), Box<dyn std::error::Error>> {
    let mut out = io::stdout().lock();
    for object in verbena_cli::objects::objects(pid)? {
        if json {
            writeln!(out, "{}", object.json())?;
            continue;
        }
        writeln!(
            out,
            "{} (adapter {} of process {pid})",
            object.kind, object.adapter
        )?;
        for (key, value) in &object.fields {
            writeln!(out, "  {key:<18} {value}")?;
        }
    }
    Ok(())
}

/// A limit of the adapter.
struct Limit {
    /// Its name in JSON.
    key: &'static str,
    /// Its name in text.
    label: &'static str,
    value: u64,
}

fn limits(of: &Attributes) -> [Limit; 11] {
    let limit = |key, words, value: u64| Limit {
        key,
        label: words,
        value,
    };
    let shares = &of.shares;
    [
        limit("queue_pairs", "queue pairs", shares.qps.into()),
        limit("completion_queues", "completion queues", shares.cqs.into()),
        limit(
            "shared_receive_queues",
            "shared receive queues",
            shares.srqs.into(),
        ),
        limit(
            "protection_domains",
            "protection domains",
            shares.pds.into(),
        ),
        limit("regions", "memory regions and windows", shares.stags.into()),
        limit(
            "requests",
            "requests of a queue, each way",
            of.requests as u64,
        ),
        limit("pieces", "pieces of a request", of.max_sge as u64),
        limit("inline_bytes", "bytes of inline data", of.inline as u64),
        limit(
            "entries",
            "entries of a completion queue",
            of.entries as u64,
        ),
        limit(
            "shared_receives",
            "receives of a shared receive queue",
            of.shared_receives as u64,
        ),
        limit("message_bytes", "bytes of a message", of.message.into()),
    ]
}
