//! The side that is measured against: answers what must be answered, and shares memory for the rest.
//! It promises to serve one connection after the other, each as its private data says, until it is told to stop.
//! It refuses to measure.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use verbena::low::{BLANK, QpState};
use verbena::{Config, Device, Listener, RemoteMemory};

use super::Error;
use super::baseline;
use super::case::{Case, Metric, Op};
use super::client::{Station, await_mark, mark};

/// A server.
#[derive(Debug)]
pub struct Server {
    device: Device,
    listener: Listener,
    /// Where plain TCP is measured.
    tcp: TcpListener,
}

impl Server {
    /// Listens.
    pub fn bind(config: Config, at: SocketAddr) -> Result<Server, Error> {
        let device = Device::with(config)?;
        let listener = device.listen(at)?;
        let tcp = TcpListener::bind(SocketAddr::new(at.ip(), 0))?;
        Ok(Server {
            device,
            listener,
            tcp,
        })
    }

    /// Where it listens.
    pub fn local(&self) -> Result<SocketAddr, Error> {
        Ok(self.listener.local()?)
    }

    /// Serves for ever; what goes wrong with one client is told and does not end the server.
    pub fn run(&self, mut told: impl FnMut(&str)) -> Result<(), Error> {
        let tcp = self.tcp.try_clone()?;
        std::thread::spawn(move || baseline::serve(&tcp));
        loop {
            if let Err(error) = self.serve() {
                told(&error.to_string());
            }
        }
    }

    fn serve(&self) -> Result<(), Error> {
        let request = self.listener.next().wait()?;
        let words = request.private_data().to_vec();
        let case = Case::from_bytes(&words);
        let remote = words
            .get(Case::BYTES..)
            .and_then(|w| RemoteMemory::from_bytes(w).ok());
        let (Some(case), Some(remote)) = (case, remote) else {
            request.reject(b"not a client of this benchmark");
            return Err(Error::Failed("a stranger called".to_owned()));
        };
        let station = Station::new(&self.device, case)?;
        let receives = match (case.op, case.metric) {
            (Op::Send, Metric::Latency) => 128,
            (Op::Send, _) => (4 * case.depth as usize).max(256),
            _ => 0,
        };
        let mut words = station.memory.remote().to_bytes().to_vec();
        if case.op == Op::Write && case.metric == Metric::Latency {
            let half = station.memory.len() as u64 / 2;
            words = station
                .memory
                .remote()
                .slice(half, half)?
                .to_bytes()
                .to_vec();
        }
        words.extend(self.tcp.local_addr()?.port().to_be_bytes());
        let joining = request.accept_on(&station.qp, &words)?;
        station.post_receives(receives)?;
        joining.wait()?;
        match (case.metric, case.op) {
            (Metric::Latency, Op::Send) => answer_sends(&station, &remote),
            (Metric::Latency, Op::Write) => answer_writes(&station, case, &remote),
            (_, Op::Send) => take(&station, case),
            _ => Ok(()),
        }?;
        // What is left needs nobody here: wait until the client goes.
        while is_joined(&station) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// The client is still there.
fn is_joined(station: &Station) -> bool {
    let view = station.qp.view();
    view.state == QpState::Rts && !view.peer_gone
}

fn answer_sends(station: &Station, remote: &RemoteMemory) -> Result<(), Error> {
    let mut wcs = [BLANK; 16];
    let mut idle = 0_u32;
    // Asking whether the client is there costs more than a poll, so it is asked seldom.
    while !idle.is_multiple_of(4096) || idle == 0 || is_joined(station) {
        let (_, came) = station.poll(&mut wcs)?;
        idle = if came == 0 { idle.wrapping_add(1) } else { 0 };
        for _ in 0..came {
            station.post_receives(1)?;
            station.post(remote, 1)?;
        }
    }
    Ok(())
}

fn answer_writes(station: &Station, case: Case, remote: &RemoteMemory) -> Result<(), Error> {
    let mut wcs = [BLANK; 16];
    for turn in 0..(case.count + case.count / 10) as usize {
        await_mark(station, turn, &mut wcs)?;
        mark(station, turn)?;
        station.post(remote, 1)?;
    }
    Ok(())
}

fn take(station: &Station, case: Case) -> Result<(), Error> {
    let mut wcs = [BLANK; 64];
    let mut taken = 0;
    while taken < case.count as usize {
        let (_, came) = station.poll(&mut wcs)?;
        station.post_receives(came)?;
        taken += came;
    }
    Ok(())
}
