//! Connection requests one by one, for programs that do more than [connect](crate::Device::connect) and
//! [accept](crate::Listener::accept). A [`Connector`] sends private data and sets depths; [`Listener::next`](crate::Listener::next)
//! returns a [`ConnectRequest`], which the program accepts, accepts with an [`Endpoint`](crate::Endpoint) or a queue pair that it
//! prepared, or rejects. A request that is dropped is rejected.
//!
//! ```
//! use verbena::Device;
//! use verbena::low::{Qp, QpOptions};
//!
//! let device = Device::open()?;
//! let listener = device.bind("127.0.0.1:0")?; // a port, before anything can arrive
//! let to = listener.local_addr()?;
//! let listener = listener.listen(16)?;
//!
//! // To a queue pair of the low layer, from a connection of the high one.
//! let connecting = device.connector(b"v2").depth(32).connect(to);
//! let request = listener.next().wait()?;
//! assert_eq!(request.private_data(), b"v2");
//! let cq = device.cq(64)?;
//! let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
//! request.accept_on(&qp, b"v2 it is")?.wait()?;
//! assert_eq!(connecting.wait()?.private_data(), b"v2 it is");
//! # Ok::<(), verbena::Error>(())
//! ```

pub use crate::connect::Connector;
pub use crate::listener::{Accepting, BoundListener, ConnectRequest, NextRequest};
