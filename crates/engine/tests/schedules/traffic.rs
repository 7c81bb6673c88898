//! Requests and completions of one queue pair.
