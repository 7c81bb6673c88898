//! Events in the order in which they occurred. The end of a command is reported only after the target's access to its memory has been
//! revoked, and what came after it is not reported before.

use std::collections::VecDeque;

use crate::session::link::LinkEvent;

/// Events that were not reported yet.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Each with the task number whose registration has to be invalidated first, if any.
    queue: VecDeque<(LinkEvent, Option<u32>)>,
}

impl Events {
    pub(super) fn push(&mut self, event: LinkEvent) {
        self.queue.push_back((event, None));
    }

    /// An event that is reported once the registration of this task is invalidated.
    pub(super) fn push_after(&mut self, event: LinkEvent, task: u32) {
        self.queue.push_back((event, Some(task)));
    }

    /// The registration of a task is invalidated.
    pub(super) fn set_invalidated(&mut self, task: u32) {
        let waits = |(_, on): &&mut (LinkEvent, Option<u32>)| *on == Some(task);
        if let Some((_, on)) = self.queue.iter_mut().find(waits) {
            *on = None;
        }
    }

    /// Number of events that were not reported.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether the next event has to wait.
    pub(super) fn must_wait(&self) -> bool {
        self.queue.front().is_some_and(|(_, on)| on.is_some())
    }

    /// Reports the events up to the first that has to wait.
    pub(super) fn report(&mut self, news: &mut Vec<LinkEvent>) {
        let ready = self.queue.iter().take_while(|(_, on)| on.is_none());
        let ready = ready.count();
        news.extend(self.queue.drain(..ready).map(|(event, _)| event));
    }

    /// Reports all: the connection has ended, and with it the target's access.
    pub(super) fn report_all(&mut self, news: &mut Vec<LinkEvent>) {
        news.extend(self.queue.drain(..).map(|(event, _)| event));
    }
}
