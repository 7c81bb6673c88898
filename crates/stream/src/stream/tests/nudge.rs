//! The empty Write for a standard peer that may have missed our first frame (WIRE.md L).

use super::*;
