//! What is left of a queue pair's connection, as one state: the end of the peer, the grace period after it, a frame that cannot be
//! finished, and the end of the queue pair itself. Every pair of state and event has an entry in one table, and the state changes
//! nowhere else. Streams, requests and timers are not known here: events carry what the caller has determined.

use core::time::Duration;

use verbena_stream::Time;

/// State of a queue pair's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum LinkState {
    /// Nothing has ended, as far as is known; also while no stream is attached.
    #[default]
    Open,
    /// The peer has ended the connection, by reset or not, behind a message that waits: the end is processed after the message.
    Ending { reset: bool },
    /// The peer is gone: requests that need it fail.
    Gone,
    /// The peer is gone, and no request has needed it since: the connection stays, and the grace period begins with the first that does.
    Unnoticed,
    /// The peer is gone, and requests wait for its answer until then.
    Grace { until: Time },
    /// A frame was begun that cannot be finished: the connection can only be aborted.
    Severed,
    /// Severed, and the end of the peer is processed after a message that waits.
    SeveredEnding { reset: bool },
    /// Severed, and the peer is gone.
    SeveredGone,
    /// The queue pair is destroyed: handles to it that still exist have no effect.
    Retired,
}

/// Input of the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkEvent {
    /// A stream is attached.
    Attach,
    /// The peer has ended the connection, and a message before that waits.
    EndBehindMessage { reset: bool },
    /// The peer has ended the connection, and everything before that has been processed.
    End {
        /// Requests have a grace period.
        grace: bool,
    },
    /// Nothing is left of the connection.
    Close,
    /// The peer has not answered for as long as the program allows, and requests wait for it.
    PeerDead,
    /// No stream was ever attached, and none is expected any more.
    NoPeer,
    /// Requests that have not completed need a peer that is gone.
    Need { now: Time, grace: Duration },
    /// A frame was begun that cannot be finished.
    Sever,
    /// The queue pair is destroyed.
    Retire,
}

/// Action for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkAct {
    /// Nothing but the new state.
    Nothing,
    /// The program is told that the peer has disconnected.
    RaiseDisconnected,
    /// Requests go on waiting for the peer.
    Wait,
    /// Requests that need the peer fail.
    Fail,
    /// The call fails.
    Reject,
}

impl LinkState {
    /// The transition table.
    pub(super) fn next(self, event: LinkEvent) -> (LinkState, LinkAct) {
        use LinkAct as Act;
        use LinkEvent as Event;
        use LinkState as S;
        match (self, event) {
            (S::Retired, Event::Attach | Event::Retire) => (S::Retired, Act::Reject),
            (S::Retired, _) => (S::Retired, Act::Nothing),
            (_, Event::Retire) => (S::Retired, Act::Nothing),
            (_, Event::Attach) => (S::Open, Act::Nothing),
            // Bytes that the peer has not taken by now are given up, so the connection can only be aborted.
            (_, Event::PeerDead) => (S::SeveredGone, Act::RaiseDisconnected),

            (S::Open, Event::EndBehindMessage { reset }) => (S::Ending { reset }, Act::Nothing),
            (S::Severed, Event::EndBehindMessage { reset }) => {
                (S::SeveredEnding { reset }, Act::Nothing)
            }
            // A reset may follow an orderly end, not the other way round.
            (S::Ending { reset: before }, Event::EndBehindMessage { reset }) => {
                let reset = before || reset;
                (S::Ending { reset }, Act::Nothing)
            }
            (S::SeveredEnding { reset: before }, Event::EndBehindMessage { reset }) => {
                let reset = before || reset;
                (S::SeveredEnding { reset }, Act::Nothing)
            }

            (S::Open | S::Ending { .. }, Event::End { grace: true }) => {
                (S::Unnoticed, Act::RaiseDisconnected)
            }
            (S::Open | S::Ending { .. }, Event::End { grace: false } | Event::Close) => {
                (S::Gone, Act::RaiseDisconnected)
            }
            (S::Open | S::Ending { .. }, Event::NoPeer) => (S::Gone, Act::Nothing),
            (S::Severed | S::SeveredEnding { .. }, Event::End { .. } | Event::Close) => {
                (S::SeveredGone, Act::RaiseDisconnected)
            }
            (S::Severed | S::SeveredEnding { .. }, Event::NoPeer) => (S::SeveredGone, Act::Nothing),
            (
                S::Gone | S::Unnoticed | S::Grace { .. } | S::SeveredGone,
                Event::EndBehindMessage { .. } | Event::End { .. } | Event::Close | Event::NoPeer,
            ) => (self, Act::Nothing),

            (S::Open, Event::Sever) => (S::Severed, Act::Nothing),
            (S::Ending { reset }, Event::Sever) => (S::SeveredEnding { reset }, Act::Nothing),
            (S::Gone | S::Unnoticed | S::Grace { .. }, Event::Sever) => {
                (S::SeveredGone, Act::Nothing)
            }
            (S::Severed | S::SeveredEnding { .. } | S::SeveredGone, Event::Sever) => {
                (self, Act::Nothing)
            }

            (
                S::Open | S::Ending { .. } | S::Severed | S::SeveredEnding { .. },
                Event::Need { .. },
            ) => (self, Act::Nothing),
            (S::SeveredGone, Event::Need { .. }) => (self, Act::Fail),
            (S::Gone | S::Unnoticed | S::Grace { .. }, Event::Need { now, grace }) => {
                self.need(now, grace)
            }
        }
    }

    /// The peer is gone and requests need it: they wait for a grace period, if they have one.
    fn need(self, now: Time, grace: Duration) -> (LinkState, LinkAct) {
        if grace.is_zero() {
            return (self, LinkAct::Fail);
        }
        let until = match self {
            LinkState::Grace { until } => until,
            _ => now + grace,
        };
        let act = if now < until {
            LinkAct::Wait
        } else {
            LinkAct::Fail
        };
        (LinkState::Grace { until }, act)
    }

    /// Processes an event; returns what the caller does.
    pub(super) fn handle(&mut self, event: LinkEvent) -> LinkAct {
        let (next, act) = self.next(event);
        *self = next;
        act
    }

    /// The peer is gone, and its end has been processed.
    #[inline]
    pub(super) fn is_gone(self) -> bool {
        matches!(
            self,
            LinkState::Gone
                | LinkState::Unnoticed
                | LinkState::Grace { .. }
                | LinkState::SeveredGone
        )
    }

    /// The end of the peer is to be processed: `Some(true)` if that was a reset.
    pub(super) fn deferred_end(self) -> Option<bool> {
        match self {
            LinkState::Ending { reset } | LinkState::SeveredEnding { reset } => Some(reset),
            _ => None,
        }
    }

    /// The peer has the beginning of a frame whose rest is lost: the connection must be aborted.
    #[inline]
    pub(super) fn is_severed(self) -> bool {
        matches!(
            self,
            LinkState::Severed | LinkState::SeveredEnding { .. } | LinkState::SeveredGone
        )
    }

    /// The queue pair is destroyed.
    pub(super) fn is_retired(self) -> bool {
        self == LinkState::Retired
    }

    /// The connection to a lost peer is not closed: requests wait for it, or would.
    pub(super) fn keeps_connection(self) -> bool {
        matches!(self, LinkState::Unnoticed | LinkState::Grace { .. })
    }

    /// The end of the grace period, if it has begun.
    pub(super) fn grace_ends(self) -> Option<Time> {
        match self {
            LinkState::Grace { until } => Some(until),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
