//! A session and a scripted target in one thread: the target receives what was sent, and sends what the test wants. A test sees every PDU
//! but login requests and NOP-Outs, which are answered. StatSN and the command window are maintained here, everything else is up to the test.

#![allow(dead_code, unreachable_pub, reason = "not every test uses all of it")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use verbena::{Device, Memory};
use verbena_storage::iscsi::Direction;
use verbena_storage::session::{Command, Ended, Options, Outcome};
use verbena_storage::{BufferRef, Session};
use verbena_storage_wire::iscsi::{
    BHS_LEN, Bhs, DataIn, FromInitiator, Lengths, LoginRequest, LoginResponse, LoginStatus,
    LogoutOutcome, LogoutResponse, Lun, NO_TAG, NopIn, R2t, Residual, ScsiCommand, ScsiResponse,
    Service, TaskOutcome, TaskRequest, TaskResponse, TextResponse, Window, pad,
};
use verbena_storage_wire::scsi::{Cdb, DeviceType};

const PATIENCE: Duration = Duration::from_secs(20);
const TARGET: &str = "iqn.2026-11.org.verbena:scripted";

/// The target's end of a connection.
pub struct Conn {
    stream: TcpStream,
    inbox: Vec<u8>,
    pub stat_sn: u32,
    exp_cmd_sn: u32,
    /// Size of the command window.
    pub window_len: u32,
    /// DefaultTime2Wait.
    pub time2wait: &'static str,
    /// The initiator closed it.
    pub closed: bool,
}

impl Conn {
    /// The target's end of a new connection.
    pub fn over(stream: TcpStream) -> Conn {
        Conn::new(stream)
    }

    fn new(stream: TcpStream) -> Conn {
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        Conn {
            stream,
            inbox: Vec::new(),
            stat_sn: 100,
            exp_cmd_sn: 1,
            window_len: 64,
            time2wait: "0",
            closed: false,
        }
    }

    /// Shuts the connection down. Returns the rest of it, on which nothing is received any more.
    pub fn shut_down(&self) -> Conn {
        self.stream.shutdown(std::net::Shutdown::Both).unwrap();
        Conn::new(self.stream.try_clone().unwrap())
    }

    /// The same connection, for a target on another thread; this one must not be used until that is returned.
    pub fn split(&self) -> Conn {
        Conn {
            stream: self.stream.try_clone().unwrap(),
            inbox: self.inbox.clone(),
            ..*self
        }
    }

    /// The next PDU, if it is complete.
    pub fn next(&mut self) -> Option<(FromInitiator, Vec<u8>)> {
        let mut some = [0; 65536];
        match self.stream.read(&mut some) {
            Ok(0) => self.closed = true,
            Ok(n) => self.inbox.extend_from_slice(&some[..n]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.closed = true,
        }
        let bhs = *self.inbox.first_chunk::<BHS_LEN>()?;
        let lengths = Lengths::of(&bhs);
        let total = lengths.total(false, false);
        if self.inbox.len() < total {
            return None;
        }
        let pdu: Vec<u8> = self.inbox.drain(..total).collect();
        let data = pdu[BHS_LEN..][..lengths.data as usize].to_vec();
        let parsed = FromInitiator::parse(&bhs).unwrap();
        if let FromInitiator::ScsiCommand(command) = &parsed {
            assert_eq!(command.cmd_sn, self.exp_cmd_sn, "numbers have no gaps");
            self.exp_cmd_sn += 1;
        }
        Some((parsed, data))
    }

    pub fn window(&self) -> Window {
        Window {
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self
                .exp_cmd_sn
                .wrapping_add(self.window_len)
                .wrapping_sub(1),
        }
    }

    pub fn status(&mut self) -> u32 {
        self.stat_sn += 1;
        self.stat_sn - 1
    }

    pub fn send_pdu(&mut self, bhs: &Bhs, data: &[u8]) {
        let mut bytes = bhs.to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len() + pad(data.len() as u32) as usize, 0);
        let (mut rest, end) = (&bytes[..], Instant::now() + PATIENCE);
        while !rest.is_empty() {
            assert!(Instant::now() < end, "the initiator does not read");
            match self.stream.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sends good status.
    pub fn respond(&mut self, itt: u32) {
        self.respond_with(itt, 0);
    }

    /// Sends a response with this status.
    pub fn respond_with(&mut self, itt: u32, status: u8) {
        let pdu = ScsiResponse {
            response: Service::Completed,
            status,
            residual: Residual::None,
            bidi_residual: Residual::None,
            data_len: 0,
            itt,
            snack: 0,
            stat_sn: self.status(),
            window: self.window(),
            exp_data_sn: 0,
        };
        self.send_pdu(&pdu.emit(), &[]);
    }

    /// Sends data from the beginning of a command's buffer, with good status or without status.
    pub fn data_in(&mut self, itt: u32, data: &[u8], last: bool) {
        let pdu = DataIn {
            is_final: last,
            acknowledge: false,
            status: last.then_some(0),
            residual: Residual::None,
            data_len: data.len() as u32,
            lun: Lun::default(),
            itt,
            ttt: NO_TAG,
            stat_sn: if last { self.status() } else { 0 },
            window: self.window(),
            data_sn: 0,
            offset: 0,
        };
        self.send_pdu(&pdu.emit(), data);
    }

    /// Sends a NOP-In that requests an answer.
    pub fn ping(&mut self, ttt: u32) {
        let pdu = NopIn {
            data_len: 0,
            lun: Lun::default(),
            itt: NO_TAG,
            ttt,
            stat_sn: self.stat_sn,
            window: self.window(),
        };
        self.send_pdu(&pdu.emit(), &[]);
    }

    /// Sends a complete text response.
    pub fn list(&mut self, itt: u32, text: &[u8]) {
        let pdu = TextResponse {
            is_final: true,
            more: false,
            data_len: text.len() as u32,
            lun: Lun::default(),
            itt,
            ttt: NO_TAG,
            stat_sn: self.status(),
            window: self.window(),
        };
        self.send_pdu(&pdu.emit(), text);
    }

    /// Sends a logout response.
    pub fn logout_response(&mut self, itt: u32) {
        let pdu = LogoutResponse {
            response: LogoutOutcome::Closed,
            itt,
            stat_sn: self.status(),
            window: self.window(),
            time2wait: 0,
            time2retain: 0,
        };
        self.send_pdu(&pdu.emit(), &[]);
    }

    /// Sends an empty login response with the C bit.
    pub fn continue_login(&mut self, request: &LoginRequest) {
        let pdu = LoginResponse {
            more: true,
            csg: request.csg,
            nsg: None,
            version_max: 0,
            version_active: 0,
            data_len: 0,
            isid: request.isid,
            tsih: 0,
            itt: request.itt,
            stat_sn: self.status(),
            window: self.window(),
            status: LoginStatus::Success,
        };
        self.send_pdu(&pdu.emit(), &[]);
    }

    pub fn r2t(&mut self, itt: u32, offset: u32, len: u32) {
        let pdu = R2t {
            lun: Lun::default(),
            itt,
            ttt: 7,
            stat_sn: self.stat_sn,
            window: self.window(),
            r2t_sn: 0,
            offset,
            len,
        };
        self.send_pdu(&pdu.emit(), &[]);
    }

    /// Sends a task management response.
    pub fn answer(&mut self, request: &TaskRequest, response: TaskOutcome) {
        let pdu = TaskResponse {
            response,
            itt: request.itt,
            stat_sn: self.status(),
            window: self.window(),
        };
        self.send_pdu(&pdu.emit(), &[]);
    }

    /// Answers logins and NOP-Outs, and returns the next PDU of another kind.
    pub fn receive(&mut self) -> Option<(FromInitiator, Vec<u8>)> {
        let (pdu, data) = self.next()?;
        match &pdu {
            FromInitiator::LoginRequest(request) => {
                self.log_in(request, &data);
                None
            }
            FromInitiator::NopOut(ping) if ping.itt != NO_TAG => {
                let pdu = NopIn {
                    data_len: 0,
                    lun: ping.lun,
                    itt: ping.itt,
                    ttt: NO_TAG,
                    stat_sn: self.status(),
                    window: self.window(),
                };
                self.send_pdu(&pdu.emit(), &[]);
                None
            }
            _ => Some((pdu, data)),
        }
    }

    /// The next task management request, for a target on another thread.
    pub fn await_task(&mut self) -> TaskRequest {
        match self.wait() {
            FromInitiator::TaskRequest(request) => request,
            other => panic!("{other}"),
        }
    }

    /// The next command, for a target on another thread.
    pub fn await_command(&mut self) -> ScsiCommand {
        match self.wait() {
            FromInitiator::ScsiCommand(command) => command,
            other => panic!("{other}"),
        }
    }

    fn wait(&mut self) -> FromInitiator {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "nothing came");
            match self.receive() {
                Some((pdu, _)) => return pdu,
                None => std::thread::yield_now(),
            }
        }
    }

    /// Accepts everything that is offered, except for unsolicited data.
    fn log_in(&mut self, request: &LoginRequest, text: &[u8]) {
        let declared = [
            "InitiatorName",
            "InitiatorAlias",
            "TargetName",
            "SessionType",
            "MaxRecvDataSegmentLength",
        ];
        let mut answer = Vec::new();
        for pair in text
            .split(|byte| *byte == 0)
            .filter(|pair| !pair.is_empty())
        {
            let (key, value) = str::from_utf8(pair).unwrap().split_once('=').unwrap();
            let value = match key {
                "ImmediateData" => "No",
                "InitialR2T" => "Yes",
                "DefaultTime2Wait" => self.time2wait,
                _ => value.split(',').next().unwrap(),
            };
            if !declared.contains(&key) {
                answer.extend_from_slice(format!("{key}={value}\0").as_bytes());
            }
        }
        let pdu = LoginResponse {
            more: false,
            csg: request.csg,
            nsg: request.nsg,
            version_max: 0,
            version_active: 0,
            data_len: answer.len() as u32,
            isid: request.isid,
            tsih: 9,
            itt: request.itt,
            stat_sn: self.status(),
            window: self.window(),
            status: LoginStatus::Success,
        };
        self.send_pdu(&pdu.emit(), &answer);
    }
}

/// How long this thread has run or waited for a processor; the rest of the time it slept. On a busy machine it waits.
fn scheduled() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let times = text.split_whitespace().take(2);
    times
        .map(|nanos| Duration::from_nanos(nanos.parse().unwrap()))
        .sum()
}

/// A session and its target.
pub struct World {
    pub session: Session,
    pub listener: TcpListener,
    pub conn: Conn,
    pub memory: Memory,
    pub ended: Vec<Ended>,
    /// How long calls to `poll` slept, of those that slept longer than [`TURN`].
    pub slept: Vec<Duration>,
}

/// A call to `poll` that sleeps for less, for a lock or a page, is not counted.
pub const TURN: Duration = Duration::from_millis(50);
/// Bytes of data of a command.
pub const LEN: usize = 4096;
pub const FILL: u8 = 0xa5;

impl World {
    pub fn new(options: Options) -> World {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        World::at("127.0.0.1", listener, options)
    }

    /// With a given listener, under this host name.
    pub fn at(host: &str, listener: TcpListener, options: Options) -> World {
        World::on(&Device::open().unwrap(), host, listener, options)
    }

    /// As [`World::at`], on a given device.
    pub fn on(device: &Device, host: &str, listener: TcpListener, options: Options) -> World {
        let port = listener.local_addr().unwrap().port();
        let address = format!("iscsi://{host}:{port}/{TARGET}/1").parse().unwrap();
        let (session, conn) = std::thread::scope(|scope| {
            let opened = scope.spawn(|| Session::open(device, &address, options).unwrap());
            let mut conn = Conn::new(listener.accept().unwrap().0);
            while !opened.is_finished() {
                assert_eq!(conn.receive(), None);
                std::thread::yield_now();
            }
            (opened.join().unwrap(), conn)
        });
        listener.set_nonblocking(true).unwrap();
        let memory = session.memory(16 * LEN).unwrap();
        memory.write_at(0, &[FILL; 16 * LEN]).unwrap();
        World {
            session,
            listener,
            conn,
            memory,
            ended: Vec::new(),
            slept: Vec::new(),
        }
    }

    pub fn to(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Starts a command that may be repeated; its data is in the part of the memory that its id selects.
    pub fn start(&mut self, id: u64, direction: Direction) {
        let command = self.command(1, id, direction);
        self.session.start(id, command).unwrap();
    }

    pub fn command(&self, lun: u16, id: u64, direction: Direction) -> Command {
        let (cdb, len) = match direction {
            Direction::None => (Cdb::test_unit_ready(), 0),
            Direction::Read => (Cdb::read(8, 8), LEN as u32),
            Direction::Write => (Cdb::write(8, 8, false), LEN as u32),
        };
        Command {
            direction,
            buffer: (len > 0).then(|| BufferRef::new(&self.memory, id as usize * LEN)),
            len,
            ..Command::plain(Lun::new(lun).unwrap(), DeviceType::Disk, cdb)
        }
    }

    pub fn bytes(&self, id: u64) -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        self.memory.read_at(id as usize * LEN, &mut bytes).unwrap();
        bytes
    }

    /// Polls the session once.
    pub fn turn(&mut self) {
        let (begun, before) = (Instant::now(), scheduled());
        self.session.poll(&mut self.ended);
        let slept = begun.elapsed().saturating_sub(scheduled() - before);
        self.slept.extend(Some(slept).filter(|slept| *slept > TURN));
        self.session
            .wait(&[], Some(Duration::from_millis(1)))
            .unwrap();
    }

    /// Polls until the closure returns a value.
    #[track_caller]
    pub fn until<R>(&mut self, what: &str, mut so: impl FnMut(&mut World) -> Option<R>) -> R {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = so(self) {
                return found;
            }
            assert!(Instant::now() < end, "no {what}; ended: {:?}", self.ended);
            self.turn();
        }
    }

    /// The next command.
    #[track_caller]
    pub fn receive_command(&mut self) -> ScsiCommand {
        match self.receive().0 {
            FromInitiator::ScsiCommand(command) => command,
            other => panic!("{other}"),
        }
    }

    /// The next task management request.
    #[track_caller]
    pub fn receive_task(&mut self) -> TaskRequest {
        match self.receive().0 {
            FromInitiator::TaskRequest(request) => request,
            other => panic!("{other}"),
        }
    }

    #[track_caller]
    pub fn receive(&mut self) -> (FromInitiator, Vec<u8>) {
        self.until("PDU", |world| world.conn.receive())
    }

    /// The next commands that end, in any order.
    #[track_caller]
    pub fn take_ended(&mut self, count: usize) -> Vec<(u64, Outcome)> {
        self.until("end", |world| (world.ended.len() >= count).then_some(()));
        let mut ended: Vec<_> = self.ended.drain(..).map(|e| (e.id, e.outcome)).collect();
        ended.sort_by_key(|(id, _)| *id);
        assert_eq!(ended.len(), count, "{ended:?}");
        ended
    }

    /// For this time nothing is sent, nothing ends, and the connection stays.
    #[track_caller]
    pub fn assert_quiet(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.turn();
            assert_eq!(self.conn.receive(), None);
            assert_eq!(self.ended, []);
            assert!(!self.conn.closed);
        }
    }

    /// Polls until the session has closed the connection.
    #[track_caller]
    pub fn until_closed(&mut self) {
        self.until("end of the connection", |world| {
            while world.conn.receive().is_some() {}
            world.conn.closed.then_some(())
        });
    }

    /// Polls until the session has connected again, without another thread.
    #[track_caller]
    pub fn accept(&mut self) {
        let stream = self.until("connection", |world| {
            let accepted = world.listener.accept();
            accepted.ok().map(|(stream, _)| stream)
        });
        self.conn = Conn::new(stream);
    }
}

/// A successful end.
pub fn good(id: u64) -> (u64, Outcome) {
    (id, Outcome::Good(Residual::None))
}
