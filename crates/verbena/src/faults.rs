//! Failures on purpose, for tests of how a program handles them: requests, registrations and connects that fail, queue pairs and connections
//! that end, delays. A [`Script`] has rules and a seed; [`Device::set_faults`](crate::Device::set_faults) makes them happen. `verbena
//! faults` does the same to a program from outside (docs/tools.md, which describes every kind).
//!
//! ```
//! use verbena::faults::{Effect, Script, When};
//! let by_name: Script = "seed=7; completion nth=3 status=REM_ACCESS_ERR".parse()?;
//! let by_type = Script::seeded(7).with(When::Nth(3), Effect::Completion(verbena::Status::RemAccessErr));
//! assert_eq!(by_name, by_type);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Of the engine, deliberately: rules are plain data, with the names that scripts have.

pub use verbena_engine::faults::{
    Effect, FaultCount, FaultCounts, Rate, Refusals, Rule, Script, ScriptError, When,
};
