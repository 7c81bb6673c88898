//! Commands with short answers: targets and units, properties of a unit, and whether a target answers. Text and JSON have the same facts.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use verbena_storage::session::discover as targets_of;
use verbena_storage::{Address, Blocks, Session, Unit};
use verbena_storage_wire::iscsi::Lun;
use verbena_storage_wire::scsi::DeviceType;

use super::size::format_bytes;
use super::url::Url;
use super::{BoxError, Common, device, show};

#[derive(Args)]
pub(super) struct Portal {
    /// The portal: iscsi://[USER%PASSWORD@]HOST[:PORT]
    #[arg(value_name = "URL", value_parser = Url::<Address>::new())]
    address: Address,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(super) struct TargetArgs {
    /// The target, followed by the LUN where one is needed
    #[arg(value_name = "URL", value_parser = Url::<Address>::new())]
    address: Address,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(super) struct Ping {
    /// The target
    #[arg(value_name = "URL", value_parser = Url::<Address>::new())]
    address: Address,
    /// Number of pings
    #[arg(long, short = 'n', default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(super) struct Reset {
    /// The unit
    #[arg(value_name = "URL", value_parser = Url::<Address>::new())]
    address: Address,
    #[command(flatten)]
    common: Common,
}

pub(super) fn discover(args: &Portal) -> Result<(), BoxError> {
    let address = args.common.secret.complete(&args.address)?;
    let found = targets_of(&device(&[&address])?, &address, &args.common.options())?;
    let portals = |addresses: &[_]| match addresses {
        // RFC 7143 Appendix C: a target without an address is at the address of the discovery session.
        [] => vec![format!("{}:{}", args.address.host, args.address.port)],
        some => some.iter().map(ToString::to_string).collect(),
    };
    if args.json {
        let targets: Vec<Value> = found
            .iter()
            .map(|target| json!({ "name": target.name, "portals": portals(&target.addresses) }))
            .collect();
        show(json!({ "targets": targets }))?;
        return Ok(());
    }
    if found.is_empty() {
        show(format_args!("no targets"))?;
    }
    for target in &found {
        let at = portals(&target.addresses).join(" ");
        show(format_args!("{}  {at}", target.name))?;
    }
    Ok(())
}

pub(super) fn luns(args: &TargetArgs) -> Result<(), BoxError> {
    let mut session = args.common.session(&args.address)?;
    let mut rows = Vec::new();
    for lun in session.luns()? {
        rows.push(row(&mut session, lun)?);
    }
    session.close()?;
    if args.json {
        show(json!({ "luns": rows }))?;
        return Ok(());
    }
    for row in &rows {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let size = row["bytes"].as_u64().map_or(String::new(), format_bytes);
        show(format_args!(
            "{:>5}  {:<12} {:>10}  {} {}",
            text("lun"),
            text("type"),
            size,
            text("vendor"),
            text("product")
        ))?;
    }
    Ok(())
}

/// The row of a unit.
fn row(session: &mut Session, lun: Lun) -> Result<Value, BoxError> {
    let identity = session.identity(lun)?;
    let bytes = match identity.device {
        DeviceType::Disk => session.capacity(lun)?.bytes(),
        _ => None,
    };
    Ok(json!({
        "lun": lun.to_string(),
        "type": identity.device.to_string(),
        "vendor": identity.vendor,
        "product": identity.product,
        "bytes": bytes,
    }))
}

pub(super) fn inquiry(args: &TargetArgs) -> Result<(), BoxError> {
    let number = required_lun(&args.address)?;
    let mut session = args.common.session(&args.address)?;
    let identity = session.identity(lun_from(number)?)?;
    let mut facts = json!({
        "type": identity.device.to_string(),
        "vendor": identity.vendor,
        "product": identity.product,
        "revision": identity.revision,
        "serial": identity.serial,
    });
    if identity.device == DeviceType::Disk {
        let disk = Unit::of(session, number)?;
        let geometry = disk.geometry();
        disk.close()?;
        facts["bytes"] = json!(geometry.bytes());
        facts["block_size"] = json!(geometry.block_size);
        facts["optimal_transfer"] = json!(geometry.optimal);
        facts["maximal_transfer"] = json!(geometry.maximal);
        facts["unmap"] = json!(geometry.can_unmap);
        facts["write_protected"] = json!(geometry.read_only);
    } else {
        session.close()?;
    }
    if args.json {
        show(facts)?;
        return Ok(());
    }
    let lines = [
        ("type", "type"),
        ("vendor", "vendor"),
        ("product", "product"),
        ("revision", "revision"),
        ("serial", "serial number"),
        ("bytes", "size"),
        ("block_size", "block"),
        ("optimal_transfer", "optimal request"),
        ("maximal_transfer", "longest request"),
        ("unmap", "unmap"),
        ("write_protected", "write-protected"),
    ];
    for (key, title) in lines {
        let said = match &facts[key] {
            Value::Null => continue,
            Value::String(text) if text.is_empty() => continue,
            Value::Number(number) if number.as_u64() == Some(0) => continue,
            Value::Number(number) => {
                let bytes = number.as_u64().unwrap_or_default();
                format!("{bytes} bytes ({})", format_bytes(bytes))
            }
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        show(format_args!("{title:<16} {said}"))?;
    }
    Ok(())
}

pub(super) fn capacity(args: &TargetArgs) -> Result<(), BoxError> {
    let lun = lun_from(required_lun(&args.address)?)?;
    let mut session = args.common.session(&args.address)?;
    // A LUN that does not exist may answer other commands in any way.
    session.identity(lun)?;
    let capacity = session.capacity(lun)?;
    session.close()?;
    let (Some(blocks), Some(bytes)) = (capacity.blocks(), capacity.bytes()) else {
        return Err(format!("the size of unit {lun} in bytes does not fit in 64 bits").into());
    };
    let size = capacity.block_len;
    match args.json {
        true => show(json!({ "blocks": blocks, "block_size": size, "bytes": bytes }))?,
        false => show(format_args!(
            "{bytes} bytes ({}): {blocks} blocks of {size} bytes",
            format_bytes(bytes)
        ))?,
    }
    Ok(())
}

pub(super) fn ping(args: &Ping) -> Result<(), BoxError> {
    let mut session = args.common.session(&args.address)?;
    let mut times = Vec::new();
    for number in 1..=args.count {
        let time = session.ping()?;
        times.push(micro(time));
        if !args.json {
            show(format_args!("reply {number} after {:.1} µs", micro(time)))?;
        }
    }
    session.close()?;
    if args.json {
        show(json!({ "microseconds": times }))?;
    }
    Ok(())
}

pub(super) fn reset(args: &Reset) -> Result<(), BoxError> {
    let lun = lun_from(required_lun(&args.address)?)?;
    let mut session = args.common.session(&args.address)?;
    session.identity(lun)?;
    session.reset_unit(lun)?;
    session.close()?;
    show(format_args!("unit {lun} was reset"))?;
    Ok(())
}

fn micro(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// The LUN of an address that must have one.
fn required_lun(address: &Address) -> Result<u16, BoxError> {
    let missing = || format!("{address} names no unit: add its LUN, as in …/1 (luns lists them)");
    Ok(address.lun.ok_or_else(missing)?)
}

fn lun_from(number: u16) -> Result<Lun, BoxError> {
    Ok(Lun::new(number).ok_or_else(|| format!("{number} is not a valid LUN; use 0 to 16383"))?)
}
