//! Errors and sources of settings, and the access list that two of them make. [`Config`](crate::Config) reads the environment and the
//! user's file; a program may set any of them by its key (docs/configuration.md lists the keys).
//!
//! ```
//! use verbena::config::Source;
//! use verbena::{Config, Device};
//!
//! let mut config = Config::default();
//! config.set("deny", "192.0.2.0/24")?;
//! let problems = config.set("crc", "perhaps").unwrap_err();
//! assert!(problems.to_string().contains("crc"), "the key, the value, and what it could be: {problems}");
//!
//! let device = Device::with(config)?;
//! let row = device.config().describe().into_iter().find(|row| row.key == "deny").unwrap();
//! assert_ne!(row.source, Source::Default);
//! assert!(!device.access_list().admits([192, 0, 2, 7].into()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Of the engine, deliberately: rows that describe settings and their errors are plain data. The keys are what is kept.

pub use verbena_engine::AccessList;
pub use verbena_engine::config::{ConfigError, ConfigErrors, SettingOrigin, Source};
