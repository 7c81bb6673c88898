//! Steps whose result does not depend on time, run one after the other with the lowest priority while the tests wait for each other: models,
//! schedules, seeds. What a step prints goes into a file of its own, which is printed when the step's turn comes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail};

use crate::command::Tool;
use crate::step::Outcome;
use crate::workspace::Workspace;

/// What runs in the background, in order. When it is dropped, no further command is started; the running one is waited for.
pub(crate) struct Background {
    steps: Vec<Step>,
    is_stopped: Arc<AtomicBool>,
    running: Option<JoinHandle<()>>,
}

struct Step {
    title: &'static str,
    log: PathBuf,
    result: Receiver<Result<()>>,
}

impl Background {
    /// Starts the commands of all steps.
    pub(crate) fn start(
        workspace: &Workspace,
        steps: impl IntoIterator<Item = (&'static str, Vec<Tool>)>,
    ) -> Background {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let mut shown = Vec::new();
        let mut work = Vec::new();
        for (title, tools) in steps {
            let log = workspace
                .target
                .join(format!("test-{}.log", title.replace(' ', "-")));
            let (sender, result) = channel();
            work.push((tools, log.clone(), sender));
            shown.push(Step { title, log, result });
        }
        let stopped = Arc::clone(&is_stopped);
        let running = std::thread::spawn(move || {
            for (tools, log, sender) in work {
                // The receiver is gone if another step failed first.
                let _ = sender.send(run_all(tools, &log, &stopped));
            }
        });
        Background {
            steps: shown,
            is_stopped,
            running: Some(running),
        }
    }

    /// Waits for the step, prints what it has printed, and returns its result.
    pub(crate) fn finish(&self, title: &str) -> Result<Outcome> {
        let Some(step) = self.steps.iter().find(|step| step.title == title) else {
            bail!("the background has no step `{title}`");
        };
        let result = step.result.recv();
        // There is no file if it could not be created, which the result says.
        let text = std::fs::read_to_string(&step.log).unwrap_or_default();
        print!("{text}");
        result.unwrap_or_else(|_| bail!("the thread of the background panicked"))?;
        Ok(Outcome::printed_in(&text))
    }
}

/// Runs the commands of a step, up to the first that fails.
fn run_all(tools: Vec<Tool>, log: &Path, is_stopped: &AtomicBool) -> Result<()> {
    File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    for tool in tools {
        let shown = tool.shown();
        if is_stopped.load(Ordering::Acquire) {
            bail!("`{shown}` was not started");
        }
        if !tool.in_idle_time().run_into(log)? {
            bail!("`{shown}` failed");
        }
    }
    Ok(())
}

impl Drop for Background {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        if let Some(running) = self.running.take() {
            // A panic was reported by the thread itself.
            let _ = running.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use verbena_testing::wait_until;

    fn workspace(name: &str) -> Workspace {
        let target = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&target).unwrap();
        Workspace {
            target,
            ..Workspace::load().unwrap()
        }
    }

    fn shell(command: &str) -> Tool {
        Tool::new("sh").args(["-c", command])
    }

    #[test]
    fn failure_belongs_to_its_step() {
        let workspace = workspace("failure");
        let steps = [
            ("one", vec![shell("exit 3"), shell("echo not reached")]),
            ("two", vec![shell("echo two")]),
        ];
        let background = Background::start(&workspace, steps);
        assert!(background.finish("one").is_err());
        assert!(matches!(background.finish("two"), Ok(Outcome::Passed)));
        assert!(background.finish("three").is_err());
        let log = |name| std::fs::read_to_string(workspace.target.join(name)).unwrap();
        assert_eq!(log("test-one.log"), "");
        assert_eq!(log("test-two.log"), "two\n");
        std::fs::remove_dir_all(&workspace.target).unwrap();
    }

    #[test]
    fn nothing_is_started_after_the_end() {
        let workspace = workspace("end");
        let [started, go, late] = ["started", "go", "late"].map(|name| workspace.target.join(name));
        let (started_, go_) = (started.display(), go.display());
        let first = shell(&format!(
            "touch {started_}; until [ -e {go_} ]; do sleep 0.01; done"
        ));
        let second = shell(&format!("touch {}", late.display()));
        let background = Background::start(&workspace, [("one", vec![first, second])]);
        wait_until("the first runs", || started.exists());
        background.is_stopped.store(true, Ordering::Release);
        std::fs::write(&go, "").unwrap();
        drop(background);
        assert!(!late.exists());
        std::fs::remove_dir_all(&workspace.target).unwrap();
    }
}
