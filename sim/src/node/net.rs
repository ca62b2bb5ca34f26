//! quinn over turmoil's UDP, with a network that loses, repeats and reorders packets.
//!
//! turmoil carries packets with a latency per link and cuts links; everything a single packet suffers is drawn here,
//! from the seed: turmoil's own failure rate takes whole links down, it never repeats a packet, and its latencies are
//! whole milliseconds.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::hash::Hasher;
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
use siphasher::sip::SipHasher13;
use tidegate::transport::{Boxed, Network};
use turmoil::net::UdpSocket;

use super::clock::elapsed_ns;
use crate::run::Traffic;
use crate::schedule::Weather;
use crate::seed::Seed;
use crate::trace::Trace;

/// What is the same for all hosts: the weather, and which ways are cut. (turmoil does the cutting.)
#[derive(Debug, Default)]
pub struct Sky(Mutex<(Weather, BTreeSet<(usize, usize)>)>);

impl Sky {
    fn lock(&self) -> MutexGuard<'_, (Weather, BTreeSet<(usize, usize)>)> {
        self.0.lock().expect("a simulation is one thread, and ends with the first panic")
    }

    /// The weather changes.
    pub fn set_weather(&self, weather: Weather) {
        self.lock().0 = weather;
    }

    /// Nothing passes any more, or it does again.
    pub fn set_cut(&self, from: usize, to: usize, cut: bool) {
        let mut sky = self.lock();
        if cut {
            sky.1.insert((from, to));
        } else {
            sky.1.remove(&(from, to));
        }
    }

    /// Whether anything is cut.
    pub fn any_cut(&self) -> bool {
        !self.lock().1.is_empty()
    }

    /// All that is cut, as (from, to).
    pub fn cuts(&self) -> Vec<(usize, usize)> {
        self.lock().1.iter().copied().collect()
    }
}

/// The network as one host has it.
pub struct TurmoilNetwork {
    quic_seed: u64,
    air: Arc<Air>,
}

/// What packets of one host pass through.
struct Air {
    host: String,
    sky: Arc<Sky>,
    /// To whom the way is longer than back, and by how many milliseconds.
    longer: Vec<(IpAddr, u64)>,
    trace: Trace,
    state: Mutex<(StdRng, Traffic)>,
}

impl TurmoilNetwork {
    /// The network of `host`. `seed` must differ from life to life of a host, or a bounced host would repeat the
    /// connection ids of its former life. `longer` are the hosts to which the way is longer than back, with by how many
    /// milliseconds.
    pub fn new(host: &str, seed: Seed, sky: Arc<Sky>, longer: &[(&str, u64)], trace: Trace) -> Self {
        let state = Mutex::new((seed.rng("packets"), Traffic::default()));
        let longer = longer.iter().map(|(host, ms)| (turmoil::lookup(*host), *ms)).collect();
        let air = Arc::new(Air { host: host.to_owned(), sky, longer, trace, state });
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

/// What becomes of one packet.
struct Fate {
    /// For each copy that arrives, how late.
    copies: [Option<u64>; 2],
    /// Which bit changes.
    flipped: Option<usize>,
}

impl Air {
    fn lock(&self) -> MutexGuard<'_, (StdRng, Traffic)> {
        self.state.lock().expect("a simulation is one thread, and ends with the first panic")
    }

    /// What a packet suffers on its way to an address.
    fn draw(&self, to: IpAddr, bytes: usize) -> Fate {
        let longer_ms = self.longer.iter().find(|longer| longer.0 == to).map_or(0, |longer| longer.1);
        let mut state = self.lock();
        let (rng, traffic) = &mut *state;
        traffic.packets += 1;
        traffic.bytes += bytes as u64;
        let Weather { loss_ppm, duplicate_ppm, late_ppm, late_ms, corrupt_ppm, .. } = self.sky.lock().0;
        let mut hit = |ppm| ppm > 0 && rng.random_range(0..1_000_000) < ppm;
        let (lost, twice, late) = (hit(loss_ppm), hit(duplicate_ppm), [hit(late_ppm), hit(late_ppm)]);
        let corrupt = hit(corrupt_ppm);
        let delays = late.map(|late| longer_ms + if late { rng.random_range(1..=late_ms.max(1)) } else { 0 });
        let flipped = (corrupt && bytes > 0).then(|| rng.random_range(0..8 * bytes));
        Fate { copies: [(!lost).then_some(delays[0]), twice.then_some(delays[1])], flipped }
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

/// What stands for the bytes of a packet in the trace.
fn digest(packet: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(packet);
    hasher.finish()
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
        let (mut packet, to) = (Cow::Borrowed(transmit.contents), transmit.destination);
        let fate = self.air.draw(to.ip(), packet.len());
        let told = fate.copies.map(|late| late.map_or(0, |ms| ms + 1));
        let flipped = fate.flipped.map_or(0, |bit| bit as u64 + 1);
        let numbers = [address(to), packet.len() as u64, digest(&packet), told[0], told[1], flipped];
        self.air.trace.event(elapsed_ns(), &self.air.host, "send", &numbers);
        if let Some(bit) = fate.flipped {
            packet.to_mut()[bit / 8] ^= 1 << (bit % 8);
        }
        for late_ms in fate.copies.into_iter().flatten() {
            if late_ms == 0 {
                send(&self.udp, &packet, to)?;
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

    /// Sends packets numbered from 0, one a millisecond, through some weather that clears up before packet `clear_at`; the
    /// numbers in the order of arrival.
    fn arrivals(weather: Weather, clear_at: u64) -> Vec<u64> {
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let mut sim = turmoil::Builder::new().rng_seed(1).udp_capacity(4096).build();
        let to = Arc::clone(&arrived);
        sim.host("to", move || {
            let arrived = Arc::clone(&to);
            async move {
                let network = TurmoilNetwork::new("to", Seed(1), Arc::default(), &[], Trace::new());
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
            let sky = Arc::new(Sky::default());
            sky.set_weather(weather);
            let network = TurmoilNetwork::new("from", Seed(2), Arc::clone(&sky), &[], Trace::new());
            let destination = network.resolve("to:7".to_owned()).await?[0];
            let socket = network.bind(([0, 0, 0, 0], 7).into())?;
            for number in 0..PACKETS {
                if number == clear_at {
                    sky.set_weather(Weather::default());
                }
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

    const FAIR: Weather =
        Weather { loss_ppm: 0, duplicate_ppm: 0, late_ppm: 0, late_ms: 0, corrupt_ppm: 0, gap_ppm: 0 };
    const STORM: Weather = Weather { loss_ppm: 100_000, duplicate_ppm: 50_000, late_ppm: 200_000, late_ms: 20, ..FAIR };

    #[test]
    fn fair_weather_carries_everything_in_order() {
        let all: Vec<u64> = (0..PACKETS).collect();
        assert_eq!(arrivals(FAIR, PACKETS), all);
        assert_eq!(arrivals(STORM, 0), all);
        let half = PACKETS / 2;
        let late = arrivals(STORM, half).into_iter().filter(|number| *number >= half);
        assert_eq!(late.collect::<Vec<_>>(), all[half as usize..]);
    }

    #[test]
    fn bytes_change_about_as_often_as_said() {
        let arrived = arrivals(Weather { corrupt_ppm: 100_000, ..FAIR }, PACKETS);
        assert_eq!(arrived.len() as u64, PACKETS);
        let changed: Vec<u32> = (0..).zip(&arrived).map(|(sent, number)| (sent ^ *number).count_ones()).collect();
        assert!(changed.iter().all(|bits| *bits <= 1));
        let changed = changed.iter().sum::<u32>();
        assert!((140..=260).contains(&changed), "{changed} of {PACKETS} changed");
    }

    #[test]
    fn a_storm_loses_repeats_and_reorders_about_as_often_as_it_says() {
        let arrived = arrivals(STORM, PACKETS);
        let mut once = arrived.clone();
        once.sort_unstable();
        once.dedup();
        let lost = PACKETS as usize - once.len();
        let repeated = arrived.len() - once.len();
        let overtaken = arrived.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!((140..=260).contains(&lost), "{lost} of {PACKETS} lost");
        assert!((60..=140).contains(&repeated), "{repeated} repeated");
        assert!(overtaken > 200, "{overtaken} overtaken");
        assert_eq!(arrived, arrivals(STORM, PACKETS));
    }

    #[test]
    fn a_name_without_a_port_is_refused() {
        let mut sim = turmoil::Builder::new().build();
        sim.client("a", async {
            let network = TurmoilNetwork::new("a", Seed(1), Arc::default(), &[], Trace::new());
            for bad in ["a", "a:", "a:70000", ""] {
                assert!(network.resolve(bad.to_owned()).await.is_err(), "{bad:?}");
            }
            assert_eq!(network.resolve("a:5".to_owned()).await?[0].port(), 5);
            Ok(())
        });
        sim.run().expect("the client comes to its end");
    }
}
