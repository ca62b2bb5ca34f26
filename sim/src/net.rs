//! quinn over turmoil's UDP, with a network that loses, repeats and reorders packets.
//!
//! turmoil carries packets with a latency per link and cuts links; everything a single packet suffers is drawn here,
//! from the seed: turmoil's own failure rate takes whole links down, it never repeats a packet, and its latencies are
//! whole milliseconds.

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use rand::Rng;
use rand::rngs::StdRng;
use tidegate::transport::{Boxed, Network};
use turmoil::net::UdpSocket;

use crate::clock::elapsed_ns;
use crate::seed::Seed;
use crate::trace::Trace;

/// How many of a million packets suffer what. Nothing is suffered after `until_ns` of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Weather {
    /// Lost.
    pub loss_ppm: u32,
    /// Arriving twice.
    pub duplicate_ppm: u32,
    /// Late, by up to `late_ms`, and so behind later ones.
    pub late_ppm: u32,
    /// Milliseconds.
    pub late_ms: u64,
    /// When it clears up, nanoseconds of the run.
    pub until_ns: u64,
}

/// What went over the wire between nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// UDP packets sent, lost ones too.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The network as one host has it.
pub struct TurmoilNetwork {
    quic_seed: u64,
    air: Arc<Air>,
}

/// What packets of one host pass through.
struct Air {
    host: String,
    weather: Weather,
    trace: Trace,
    state: Mutex<(StdRng, Traffic)>,
}

impl TurmoilNetwork {
    /// The network of `host`. `seed` must differ from life to life of a host, or a bounced host would repeat the
    /// connection ids of its former life.
    pub fn new(host: &str, seed: Seed, weather: Weather, trace: Trace) -> Self {
        let state = Mutex::new((seed.rng("packets"), Traffic::default()));
        let air = Arc::new(Air { host: host.to_owned(), weather, trace, state });
        Self { quic_seed: seed.of("quic").0, air }
    }

    /// What this host has sent so far.
    pub fn traffic(&self) -> Traffic {
        self.air.lock().1
    }
}

impl Network for TurmoilNetwork {
    fn bind(&self, addr: SocketAddr) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        // turmoil's bind is async in name only.
        let bound = pin!(UdpSocket::bind(addr)).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(socket) = bound else {
            return Err(io::Error::other("binding a simulated socket did not complete at once"));
        };
        Ok(Arc::new(SimSocket { udp: Arc::new(socket?), readable: Mutex::new(None), air: Arc::clone(&self.air) }))
    }

    fn resolve(&self, host: String) -> Boxed<io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let parts = host.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse::<u16>().ok()?)));
            let Some((name, port)) = parts else {
                return Err(io::Error::new(ErrorKind::InvalidInput, format!("{host:?} is not host:port")));
            };
            Ok(vec![SocketAddr::new(turmoil::lookup(name), port)])
        })
    }

    fn quic_seed(&self) -> Option<u64> {
        Some(self.quic_seed)
    }
}

/// What becomes of one packet: for each copy that arrives, how late.
struct Fate {
    copies: [Option<u64>; 2],
}

impl Air {
    fn lock(&self) -> MutexGuard<'_, (StdRng, Traffic)> {
        self.state.lock().expect("a simulation is one thread, and ends with the first panic")
    }

    fn draw(&self, bytes: usize) -> Fate {
        let mut state = self.lock();
        let (rng, traffic) = &mut *state;
        traffic.packets += 1;
        traffic.bytes += bytes as u64;
        let Weather { loss_ppm, duplicate_ppm, late_ppm, late_ms, until_ns } = self.weather;
        let mut hit = |ppm| ppm > 0 && rng.random_range(0..1_000_000) < ppm;
        if elapsed_ns() >= until_ns {
            return Fate { copies: [Some(0), None] };
        }
        let (lost, twice, late) = (hit(loss_ppm), hit(duplicate_ppm), [hit(late_ppm), hit(late_ppm)]);
        let delays = late.map(|late| if late { rng.random_range(1..=late_ms.max(1)) } else { 0 });
        Fate { copies: [(!lost).then_some(delays[0]), twice.then_some(delays[1])] }
    }
}

/// A UDP socket as quinn wants it.
struct SimSocket {
    udp: Arc<UdpSocket>,
    /// Waits for a packet. While it is pending it holds the socket's inner lock, so it must be gone before a receive.
    readable: Mutex<Option<Readable>>,
    air: Arc<Air>,
}

type Readable = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

impl fmt::Debug for SimSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimSocket({})", self.air.host)
    }
}

/// An address as the trace has it.
fn address(of: SocketAddr) -> u64 {
    let IpAddr::V4(ip) = of.ip() else { return 0 };
    u64::from(ip.to_bits()) << 16 | u64::from(of.port())
}

/// Nobody listening is what a real network reports late or never: not an error of the sender.
fn send(udp: &UdpSocket, packet: &[u8], to: SocketAddr) -> io::Result<()> {
    match udp.try_send_to(packet, to) {
        Err(error) if error.kind() != ErrorKind::ConnectionRefused => Err(error),
        _ => Ok(()),
    }
}

impl AsyncUdpSocket for SimSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let (packet, to) = (transmit.contents, transmit.destination);
        let fate = self.air.draw(packet.len());
        let told = fate.copies.map(|late| late.map_or(0, |ms| ms + 1));
        let numbers = [address(to), packet.len() as u64, told[0], told[1]];
        self.air.trace.event(elapsed_ns(), &self.air.host, "send", &numbers);
        for late_ms in fate.copies.into_iter().flatten() {
            if late_ms == 0 {
                send(&self.udp, packet, to)?;
                continue;
            }
            // A packet under way does not keep its sender's socket open.
            let (udp, packet) = (Arc::downgrade(&self.udp), packet.to_vec());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(late_ms)).await;
                if let Some(udp) = udp.upgrade() {
                    send(&udp, &packet, to).expect("a simulated send fails for want of a listener only");
                }
            });
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut readable = self.readable.lock().expect("a simulation is one thread, and ends with the first panic");
        loop {
            if let Some(waiting) = readable.as_mut() {
                let woken = ready!(waiting.as_mut().poll(cx));
                *readable = None;
                woken?;
            }
            match self.udp.try_recv_from(&mut bufs[0]) {
                Ok((len, addr)) => {
                    let numbers = [address(addr), len as u64];
                    self.air.trace.event(elapsed_ns(), &self.air.host, "receive", &numbers);
                    meta[0] = RecvMeta { addr, len, stride: len, ecn: None, dst_ip: None };
                    return Poll::Ready(Ok(1));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let udp = Arc::clone(&self.udp);
                    *readable = Some(Box::pin(async move { udp.readable().await }));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }
}

/// turmoil's UDP has no backpressure.
#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const PACKETS: u64 = 2_000;

    /// Sends packets numbered from 0, one a millisecond, through some weather; the numbers in the order of arrival.
    fn arrivals(weather: Weather) -> Vec<u64> {
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let mut sim = turmoil::Builder::new().rng_seed(1).udp_capacity(4096).build();
        let (to, from) = (Arc::clone(&arrived), weather);
        sim.host("to", move || {
            let arrived = Arc::clone(&to);
            async move {
                let network = TurmoilNetwork::new("to", Seed(1), Weather::default(), Trace::new());
                let socket = network.bind(([0, 0, 0, 0], 7).into())?;
                loop {
                    let (mut buffer, mut meta) = ([0u8; 64], [RecvMeta::default()]);
                    poll_fn(|cx| socket.poll_recv(cx, &mut [IoSliceMut::new(&mut buffer)], &mut meta)).await?;
                    let number = u64::from_le_bytes(buffer[..8].try_into()?);
                    arrived.lock().expect("one thread").push(number);
                }
            }
        });
        sim.client("from", async move {
            let network = TurmoilNetwork::new("from", Seed(2), from, Trace::new());
            let destination = network.resolve("to:7".to_owned()).await?[0];
            let socket = network.bind(([0, 0, 0, 0], 7).into())?;
            for number in 0..PACKETS {
                let contents = number.to_le_bytes();
                let transmit =
                    Transmit { destination, ecn: None, contents: &contents, segment_size: None, src_ip: None };
                socket.try_send(&transmit)?;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(network.traffic(), Traffic { packets: PACKETS, bytes: 8 * PACKETS });
            Ok(())
        });
        sim.set_link_latency("to", "from", Duration::from_millis(40));
        sim.run().expect("the client comes to its end");
        let arrived = arrived.lock().expect("one thread");
        arrived.clone()
    }

    const STORM: Weather =
        Weather { loss_ppm: 100_000, duplicate_ppm: 50_000, late_ppm: 200_000, late_ms: 20, until_ns: u64::MAX };

    #[test]
    fn calm_air_carries_everything_in_order() {
        assert_eq!(arrivals(Weather::default()), (0..PACKETS).collect::<Vec<_>>());
        // Bad weather that is over from the start.
        assert_eq!(arrivals(Weather { until_ns: 0, ..STORM }), (0..PACKETS).collect::<Vec<_>>());
    }

    #[test]
    fn a_storm_loses_repeats_and_reorders_about_as_often_as_it_says() {
        let arrived = arrivals(STORM);
        let mut once = arrived.clone();
        once.sort_unstable();
        once.dedup();
        let lost = PACKETS as usize - once.len();
        let repeated = arrived.len() - once.len();
        let overtaken = arrived.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!((140..=260).contains(&lost), "{lost} of {PACKETS} lost");
        assert!((60..=140).contains(&repeated), "{repeated} repeated");
        assert!(overtaken > 200, "{overtaken} overtaken");
        assert_eq!(arrived, arrivals(STORM));
    }

    #[test]
    fn a_name_without_a_port_is_refused() {
        let mut sim = turmoil::Builder::new().build();
        sim.client("a", async {
            let network = TurmoilNetwork::new("a", Seed(1), Weather::default(), Trace::new());
            for bad in ["a", "a:", "a:70000", ""] {
                assert!(network.resolve(bad.to_owned()).await.is_err(), "{bad:?}");
            }
            assert_eq!(network.resolve("a:5".to_owned()).await?[0].port(), 5);
            Ok(())
        });
        sim.run().expect("the client comes to its end");
    }
}
