//! Whole engines under randomised schedules: each seed runs a random program over the simulated operating system (`cargo xtask schedules`).
//! A seed that fails is printed with its step; run alone, it fails at the same step again. With the name of a mend as third argument the mend
//! is left out, and the race that it closed must fail one of the seeds. Without `--cfg shuttle` this program is empty.

#[cfg(shuttle)]
mod c_api;
#[cfg(shuttle)]
mod host;
#[cfg(shuttle)]
mod programs;
#[cfg(shuttle)]
mod traffic;
#[cfg(shuttle)]
mod without_mend;

#[cfg(not(shuttle))]
fn main() {}

#[cfg(shuttle)]
fn main() -> std::process::ExitCode {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Instant;

    use verbena_engine::sys::simulated;
    use without_mend::WithoutMend;

    /// Scheduling decisions after which a run counts as endless: the longest take a tenth.
    const MAX_STEPS: usize = 500_000;

    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| -> u64 {
        let argument = arguments.next();
        argument.map_or(default, |n| {
            n.parse().expect("seeds and first seed are numbers")
        })
    };
    let (seeds, first) = (number(100), number(0));
    let without = arguments.next().map(|name| WithoutMend::new(&name));
    let begun = Instant::now();
    let steps = Rc::new(Cell::new((0_u64, 0_u64)));
    let counted = steps.clone();
    let verbose = std::env::var_os("SCHEDULES_VERBOSE").is_some();
    let done = move |run: simulated::Run| {
        if verbose {
            println!(
                "seed {} made {} steps, digest {:016x}",
                run.seed, run.steps, run.digest
            );
        }
        let (all, most) = counted.get();
        counted.set((all + run.steps, most.max(run.steps)));
    };
    let result = simulated::run(first..first + seeds, MAX_STEPS, programs::run, done);
    if let Some(without) = without {
        return without.judge(result, seeds);
    }
    match result {
        Ok(()) => {
            let (all, most) = steps.get();
            let seconds = begun.elapsed().as_secs_f64();
            println!("{seeds} seeds passed in {seconds:.1} s: {all} steps, at most {most}");
            for case in simulated::Case::ALL {
                println!("{case:?} reached {} times", case.reached());
            }
            std::process::ExitCode::SUCCESS
        }
        Err(run) => {
            if std::env::var_os("SCHEDULES_TRACE").is_some() {
                eprintln!("{}", simulated::describe());
            }
            eprintln!(
                "seed {} ({}) failed at step {}; run it alone: cargo xtask schedules --seeds 1 --first {}",
                run.seed,
                programs::name(run.seed),
                run.steps,
                run.seed
            );
            std::process::ExitCode::FAILURE
        }
    }
}
