//! iSER.
