//! `verbena link`: the network interface of each device of the adapter, in the formats of `rdma link` and `ibdev2netdev`.
//! `rdma` itself asks the kernel over netlink, which has no information about an adapter in user space.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use verbena::Config;
use verbena::function::Service;
use verbena::unstable::{device_addresses, interface_name, is_link_up};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena link                                 as `rdma link` prints it
  verbena link --format ibdev2netdev";

/// Whose output format.
#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Rdma,
    Ibdev2netdev,
    Json,
}

#[derive(Args)]
pub(crate) struct LinkArgs {
    /// The output format, named after the program that prints it
    #[arg(long, value_enum, default_value = "rdma")]
    format: Format,
}

/// A device's port.
pub(crate) struct Link {
    pub(crate) device: String,
    /// The interface with the first address of the device; `None` if no interface has it.
    pub(crate) interface: Option<String>,
    /// An interface with an address of the device is up and has a carrier.
    pub(crate) up: bool,
}

impl Link {
    /// Its state and its physical state, as `rdma link` names them.
    fn state(&self) -> (&'static str, &'static str) {
        match self.up {
            true => ("ACTIVE", "LINK_UP"),
            false => ("DOWN", "DISABLED"),
        }
    }

    /// In the format of `ibdev2netdev`.
    pub(crate) fn ibdev2netdev(&self) -> String {
        let interface = self.interface.as_deref().unwrap_or("-");
        let state = if self.up { "Up" } else { "Down" };
        format!("{} port 1 ==> {interface} ({state})", self.device)
    }
}

/// The RDMA devices of this configuration.
pub(crate) fn links(config: &Config) -> Result<Vec<Link>, Box<dyn std::error::Error>> {
    let addresses = device_addresses(&config.device)?.unwrap_or_default();
    let interface = match addresses.first() {
        Some(ip) => interface_name(*ip)?,
        None => None,
    };
    let profile = config.device_profile()?;
    let rdma = profile
        .served_devices()
        .filter(|device| device.implemented_services().has(Service::Rdma));
    let up = is_link_up(&addresses)?;
    let link = |name: &str| Link {
        up,
        device: name.to_owned(),
        interface: interface.clone(),
    };
    Ok(rdma.map(|device| link(&device.name)).collect())
}

pub(crate) fn run(args: &LinkArgs) -> u8 {
    match try_run(args) {
        Ok(()) => 0,
        Err(error) => {
            // The reader closed the pipe.
            let io = error.downcast_ref::<io::Error>();
            if io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
                return 0;
            }
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn try_run(args: &LinkArgs) -> Result<(), Box<dyn std::error::Error>> {
    let all = links(&Config::load()?)?;
    let mut out = io::stdout().lock();
    if let Format::Json = args.format {
        let each = |link: &Link| serde_json::json!({"ifname": link.device, "port": 1, "state": link.state().0, "physical_state": link.state().1, "netdev": link.interface});
        let all: Vec<_> = all.iter().map(each).collect();
        serde_json::to_writer_pretty(&mut out, &all)?;
        writeln!(out)?;
        return Ok(());
    }
    for link in &all {
        if let Format::Ibdev2netdev = args.format {
            writeln!(out, "{}", link.ibdev2netdev())?;
            continue;
        }
        let (state, physical) = link.state();
        write!(
            out,
            "link {}/1 state {state} physical_state {physical}",
            link.device
        )?;
        match &link.interface {
            Some(interface) => writeln!(out, " netdev {interface} ")?,
            None => writeln!(out, " ")?,
        }
    }
    Ok(())
}
