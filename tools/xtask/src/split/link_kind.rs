//! One way from a namespace to another, measured with `ping` and `iperf3`.
//! Its processes and namespaces are removed after the measurement, also if it fails.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::Tool;
use crate::peers::veth::Veth;

/// What connects the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkKind {
    /// The veth pair itself.
    Cable,
    /// Two TAP interfaces, one process, a read and a write per frame.
    Pair,
    /// Frames over one TCP connection.
    Tunnel,
    /// The same, without congestion control that paces the connection, as in the split driver.
    Unpaced,
    /// As [`LinkKind::Unpaced`], with two queues at both interfaces, each with a connection and two threads of its own.
    Queued,
    /// The split driver.
    Split {
        carrier: &'static str,
        arrangement: &'static str,
        queues: u8,
    },
}

const fn split(carrier: &'static str, arrangement: &'static str) -> LinkKind {
    LinkKind::Split {
        carrier,
        arrangement,
        queues: 1,
    }
}

pub(crate) const LINK_KINDS: [LinkKind; 15] = [
    LinkKind::Cable,
    LinkKind::Pair,
    LinkKind::Tunnel,
    LinkKind::Unpaced,
    LinkKind::Queued,
    split("iwarp", "b"),
    LinkKind::Split {
        carrier: "iwarp",
        arrangement: "b",
        queues: 2,
    },
    split("iwarp", "a"),
    split("iwarp", "c"),
    split("udp", "b"),
    split("udp", "a"),
    split("udp", "c"),
    split("ethernet", "b"),
    split("ethernet", "a"),
    split("ethernet", "c"),
];

/// The traffic.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    /// Congestion control of its TCP connections.
    pub(crate) congestion: String,
    /// How many of those at a time.
    pub(crate) streams: u16,
    /// How long in each direction.
    pub(crate) seconds: u16,
}

/// The result of one measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// Round trip in microseconds: average of a flood ping in which each request waits for the reply before.
    pub(crate) ping: f64,
    /// Gigabits per second to the far side.
    pub(crate) out: f64,
    /// Gigabits per second from the far side.
    pub(crate) back: f64,
    /// Megabits per second of datagrams that arrived.
    pub(crate) datagrams: f64,
}

/// The interfaces' addresses: far, near.
const INNER: [&str; 2] = ["203.0.113.1", "203.0.113.2"];
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// Processes that are killed on drop.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Fails if it has ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl LinkKind {
    pub(crate) fn name(&self) -> String {
        match self {
            LinkKind::Cable => "veth".to_owned(),
            LinkKind::Pair => "pair of TAPs".to_owned(),
            LinkKind::Tunnel => "plain tunnel".to_owned(),
            LinkKind::Unpaced => "tunnel, unpaced".to_owned(),
            LinkKind::Queued => "tunnel, 2 queues".to_owned(),
            LinkKind::Split {
                carrier,
                arrangement,
                queues,
            } => {
                let several = match queues {
                    1 => String::new(),
                    queues => format!(", {queues} queues"),
                };
                format!("{carrier}, {}{several}", arrangement.to_uppercase())
            }
        }
    }

    pub(crate) fn is_split(&self) -> bool {
        matches!(self, LinkKind::Split { .. })
    }

    /// Sets it up, measures and takes it down.
    pub(crate) fn measure(&self, programs: &Path, load: &Load) -> Result<Figures> {
        // Processes are dropped before their namespaces.
        let veth = Veth::create(1500)?;
        let mut running = Running(Vec::new());
        let far = self.set_up(&veth, programs, &mut running)?;
        let measured = figures(&veth, far, load, &mut running);
        measured.with_context(|| self.name())
    }

    /// Starts its processes; returns the far side's address.
    fn set_up(&self, veth: &Veth, programs: &Path, running: &mut Running) -> Result<&'static str> {
        let examples = programs.join("examples");
        let start = |running: &mut Running, side, program: &Path, words: &str| -> Result<()> {
            let mut command = inside(veth, side, program);
            command.args(words.split(' ')).stdout(Stdio::null());
            running.0.push(command.spawn()?);
            Ok(())
        };
        match self {
            LinkKind::Cable => return Ok(Veth::SERVER),
            LinkKind::Pair => {
                start(running, 0, &examples.join("pair"), "far near offloads")?;
                wait_for(veth, 0, "near")?;
                let near = veth.enter(1);
                let name = near.last().context("the namespace has no name")?;
                ip(veth, 0, &format!("link set near netns {name}"))?;
            }
            LinkKind::Tunnel | LinkKind::Unpaced | LinkKind::Queued => {
                let tunnel = examples.join("tunnel");
                let at = format!("{}:9000", Veth::SERVER);
                let how = match self {
                    LinkKind::Unpaced => "offloads unpaced",
                    LinkKind::Queued => "offloads unpaced 2",
                    _ => "offloads",
                };
                start(running, 0, &tunnel, &format!("listen {at} far {how}"))?;
                wait_for(veth, 0, "far")?;
                start(running, 1, &tunnel, &format!("connect {at} near {how}"))?;
            }
            LinkKind::Split {
                carrier,
                arrangement,
                queues,
            } => {
                let verbena = programs.join("verbena");
                let [link, own] = veth.links();
                let (at, unit) = match *carrier {
                    "ethernet" => {
                        let mac = format!("/sys/class/net/{link}/address");
                        let mac = output(inside(veth, 0, Path::new("cat")).arg(mac))?;
                        let unit = format!("ethernet://{own}/{}", mac.trim());
                        (format!("ethernet://{link}"), unit)
                    }
                    _ => {
                        let at = format!("{carrier}://{}", Veth::SERVER);
                        (at.clone(), at)
                    }
                };
                let both = format!("-q --queues {queues}");
                let words = format!("unit {both} --lan-tap far --listen {at}");
                start(running, 0, &verbena, &words)?;
                wait_for(veth, 0, "far")?;
                let words =
                    format!("host {both} --tap near --connect {unit} --arrangement {arrangement}");
                start(running, 1, &verbena, &words)?;
            }
        }
        for (side, name) in [(0, "far"), (1, "near")] {
            wait_for(veth, side, name)?;
            ip(
                veth,
                side,
                &format!("address add {}/24 dev {name}", INNER[side]),
            )?;
            ip(veth, side, &format!("link set {name} up"))?;
        }
        Ok(INNER[0])
    }
}

/// A command at one end.
fn inside(veth: &Veth, side: usize, program: &Path) -> Command {
    let enter = veth.enter(side);
    let mut command = Command::new(&enter[0]);
    command.args(&enter[1..]).arg(program);
    command
}

fn ip(veth: &Veth, side: usize, words: &str) -> Result<()> {
    let enter = veth.enter(side);
    let tool = Tool::new(&enter[0]).args(&enter[1..]).arg("ip");
    tool.args(words.split(' ')).run_quietly()
}

fn output(command: &mut Command) -> Result<String> {
    let ran = command.stderr(Stdio::piped()).output()?;
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    if !ran.status.success() {
        let why = String::from_utf8_lossy(&ran.stderr).into_owned();
        bail!("{command:?}: {said}{why}");
    }
    Ok(said)
}

/// Retries until it succeeds or `RETRY_TIMEOUT` has passed.
fn retry(mut what: impl FnMut() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    loop {
        match what() {
            Err(_) if start.elapsed() < RETRY_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

fn wait_for(veth: &Veth, side: usize, interface: &str) -> Result<()> {
    retry(|| {
        let mut show = inside(veth, side, Path::new("ip"));
        output(show.args(["link", "show", interface])).map(drop)
    })
}

fn figures(veth: &Veth, far: &str, load: &Load, running: &mut Running) -> Result<Figures> {
    let near = |words: &str| {
        let mut words = words.split(' ');
        let mut command = inside(veth, 1, Path::new(words.next().unwrap_or_default()));
        output(command.args(words))
    };
    retry(|| near(&format!("ping -q -c 1 -W 1 {far}")).map(drop))?;
    let mut server = inside(veth, 0, Path::new("iperf3"));
    server
        .args(["-s"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    running.0.push(server.spawn()?);
    let pinged = near(&format!("ping -q -c 3000 -i 0 {far}"))?;
    let average = pinged
        .lines()
        .last()
        .and_then(|line| line.split('/').nth(4));
    let average: f64 = average.context("ping printed no average")?.trim().parse()?;
    let iperf3 = |words: &str| -> Result<f64> {
        let mut bits = 0.0;
        retry(|| {
            let said = near(&format!("iperf3 -J -c {far} {words}"))?;
            let said: serde_json::Value = serde_json::from_str(&said)?;
            let end = &said["end"];
            let sum = end.get("sum_received").or_else(|| end.get("sum"));
            let value = sum.and_then(|sum| sum["bits_per_second"].as_f64());
            bits = value.context("iperf3 printed no sum")?;
            Ok(())
        })?;
        Ok(bits)
    };
    let Load {
        congestion,
        streams,
        seconds,
    } = load;
    let tcp = format!("-t {seconds} -C {congestion} -P {streams}");
    Ok(Figures {
        ping: average * 1e3,
        out: iperf3(&tcp)? / 1e9,
        back: iperf3(&format!("{tcp} -R"))? / 1e9,
        datagrams: iperf3("-t 1 -u -b 0 -l 1400")? / 1e6,
    })
}
