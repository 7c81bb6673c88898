//! The function that an engine serves, and the creation of virtual functions (V1).
//! A virtual function is removed when its last object is gone, and its resources are free then. Only the physical function creates
//! virtual ones.

use core::net::IpAddr;
use std::sync::Arc;

use verbena_nic::profile::LogicalDevice;
use verbena_nic::{Adapter, Function, Shares};

use crate::config::{Config, Settings};
use crate::error::Error;
use crate::notify::handler::columns;
use crate::sys;

/// A virtual function to create: its limits, name and addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionOptions {
    /// Queue pairs.
    pub qps: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Shared send queues.
    pub ssqs: u32,
    /// Protection domains; the API in use may need one of its own.
    pub pds: u32,
    /// Regions and windows together.
    pub regions: u32,
    /// Completion handlers; each needs an event queue and a vector, and the function itself needs three more of both.
    pub handlers: u16,
    /// Its name; by default that of its adapter, `v` and its number.
    pub name: Option<String>,
    /// Own addresses for out-of-band connections; by default those of its adapter.
    pub addresses: Option<Vec<IpAddr>>,
}

impl Default for FunctionOptions {
    /// Enough for a service of a thousand connections.
    fn default() -> FunctionOptions {
        FunctionOptions {
            qps: 1 << 10,
            cqs: 1 << 10,
            srqs: 1 << 8,
            ssqs: 1 << 8,
            pds: 1 << 8,
            regions: 1 << 14,
            handlers: 4,
            name: None,
            addresses: None,
        }
    }
}

impl FunctionOptions {
    /// As much as another function may have by its settings.
    pub fn from_config(config: &Config) -> FunctionOptions {
        FunctionOptions {
            qps: config.max_qps,
            cqs: config.max_cqs,
            srqs: config.max_srqs,
            ssqs: config.max_ssqs,
            pds: config.max_pds,
            regions: config.max_regions,
            handlers: config.handlers(),
            name: None,
            addresses: None,
        }
    }

    /// The settings of the physical function, changed by these options.
    fn apply(&self, physical: &Config) -> Result<Config, Error> {
        let mut config = physical.clone();
        // A virtual function is one device and creates no others.
        let alone = |settings: &mut Settings| {
            settings.functions = 0;
            settings.presents = None;
            settings.initial_cqs = 0;
            settings.owners.clear();
        };
        config.change(alone).map_err(Error::Options)?;
        let mut numbers = vec![
            ("max_qps", self.qps.to_string()),
            ("max_cqs", self.cqs.to_string()),
            ("max_srqs", self.srqs.to_string()),
            ("max_ssqs", self.ssqs.to_string()),
            ("max_pds", self.pds.to_string()),
            ("max_regions", self.regions.to_string()),
            ("handlers", self.handlers.to_string()),
        ];
        if let Some(name) = &self.name {
            numbers.push(("name", name.clone()));
        }
        if let Some(addresses) = &self.addresses {
            let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            numbers.push(("device", all.join(",")));
        }
        for (key, value) in numbers {
            config.set(key, &value).map_err(Error::Options)?;
        }
        Ok(config)
    }
}

/// The resources of a function with these settings.
fn shares(config: &Config) -> Shares {
    let columns = columns(config.handlers());
    let arrangement = config.interrupt_arrangement;
    let vectors = u32::from(arrangement.vectors(columns));
    Shares {
        qps: config.max_qps,
        cqs: config.max_cqs,
        srqs: config.max_srqs,
        ssqs: config.max_ssqs,
        pds: config.max_pds,
        stags: config.max_regions,
        event_queues: u32::from(arrangement.queues(columns)),
        // If fewer vectors are granted, they are shared (E10).
        vectors: vectors.min(config.vectors.map_or(u32::MAX, u32::from)),
    }
}

/// A function of an adapter, released on drop.
#[derive(Debug)]
pub(crate) struct FunctionHandle {
    adapter: Arc<Adapter>,
    function: Arc<Function>,
    /// The fork count of the process it was made in.
    forks: u64,
}

impl FunctionHandle {
    pub(crate) fn physical(config: &Config) -> Result<FunctionHandle, Error> {
        let (services, shares) = (config.services(None), shares(config));
        let policy = config.remote_access;
        let adapter = Adapter::with_services(services, shares, policy, sys::random_u64()?)?;
        let function = adapter.function(0)?;
        Ok(FunctionHandle {
            adapter: Arc::new(adapter),
            function,
            forks: sys::watch_forks(),
        })
    }

    /// Creates a virtual function of the same adapter, and its settings.
    pub(crate) fn create_virtual(
        &self,
        physical: &Config,
        options: &FunctionOptions,
    ) -> Result<(FunctionHandle, Config), Error> {
        let function = self.function.number();
        if function != 0 {
            return Err(Error::Virtual { function });
        }
        let mut config = options.apply(physical)?;
        let adapter = self.adapter.clone();
        let services = physical.services(options.name.as_deref());
        let function = adapter.add_with_services(services, shares(&config))?;
        let handle = FunctionHandle {
            adapter,
            function,
            forks: sys::watch_forks(),
        };
        if options.name.is_none() {
            let name = format!("{}v{}", physical.name, handle.function.number());
            config.set("name", &name).map_err(Error::Options)?;
        }
        // Its settings show the services it is for (V2).
        let itself = LogicalDevice {
            name: config.name.clone(),
            services: services.iter().collect(),
        };
        let alone = |settings: &mut Settings| settings.presents = Some(vec![itself]);
        if physical.presents.is_some() && !services.is_empty() {
            config.change(alone).map_err(Error::Options)?;
        }
        Ok((handle, config))
    }

    pub(crate) fn function(&self) -> &Arc<Function> {
        &self.function
    }

    pub(crate) fn adapter(&self) -> &Adapter {
        &self.adapter
    }
}

impl Drop for FunctionHandle {
    fn drop(&mut self) {
        // In a forked child a lock may be held by a thread that does not exist there.
        let ours = sys::fork_count() == self.forks;
        if ours && self.function.number() != 0 {
            // Fails if the program keeps one of its objects for ever: then the resources stay with the object.
            let _ = self.adapter.remove_function(self.function.number());
        }
    }
}

#[cfg(test)]
mod tests;
