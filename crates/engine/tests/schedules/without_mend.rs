//! Runs without the mend of a race of the past: the schedules must find the race.
//! A run counts as found only if a seed fails with the message of that race; any other failure, or none, is an error.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use verbena_engine::sys::simulated::{Mend, Run};

use crate::{c_api, programs};

/// The mend that is left out, and the panics since then.
pub(crate) struct WithoutMend {
    mend: Mend,
    // Of `std`: a panic may begin while no simulated thread runs.
    panics: Arc<Mutex<Vec<String>>>,
}

impl WithoutMend {
    /// Leaves out the mend of this name. Panics are recorded instead of printed.
    pub(crate) fn new(name: &str) -> WithoutMend {
        let mend = Mend::ALL.into_iter().find(|mend| mend.name() == name);
        let mend = mend.unwrap_or_else(|| panic!("there is no mend {name:?}"));
        mend.leave_out();
        let panics = Arc::new(Mutex::new(Vec::new()));
        let recorded = panics.clone();
        std::panic::set_hook(Box::new(move |info| {
            recorded.lock().unwrap().push(info.to_string());
        }));
        WithoutMend { mend, panics }
    }

    /// Success if a seed failed by the race.
    pub(crate) fn judge(&self, result: Result<(), Run>, seeds: u64) -> ExitCode {
        let name = self.mend.name();
        let Err(run) = result else {
            eprintln!("without {name}, {seeds} seeds passed: the schedules do not find the race");
            return ExitCode::FAILURE;
        };
        let Run { seed, steps, .. } = run;
        let kind = programs::name(seed);
        let expected = match self.mend {
            Mend::LookupAfterRetire => programs::OUTLIVES,
            Mend::StateByNumber => c_api::WRITTEN,
        };
        let panics = self.panics.lock().unwrap();
        if panics.iter().any(|panic| panic.contains(expected)) {
            println!("without {name}, seed {seed} ({kind}) fails at step {steps}: {expected}");
            return ExitCode::SUCCESS;
        }
        eprintln!("without {name}, seed {seed} ({kind}) fails at step {steps}, not by the race:");
        for panic in panics.iter() {
            eprintln!("{panic}");
        }
        ExitCode::FAILURE
    }
}
