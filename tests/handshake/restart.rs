//! How nodes leave: in order, at a deadline, or killed.

use std::net::UdpSocket;
use std::time::Duration;

use tokio::time::Instant;

use crate::ground::{Cluster, DEADLINE, Names, Node, exchange};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stop_delivers_what_was_to_be_sent_and_frees_the_port() {
    let (cluster, names) = (Cluster::new(1), Names::default());
    let a = Node::start("a", cluster.identity("a"), &names, &[]);
    let b = Node::start("b", cluster.identity("b"), &names, &a.seed());
    let c = Node::start("c", cluster.identity("c"), &names, &[]);
    let addr = a.addr();
    a.hub.until("b", |record| record.connected("b")).await;
    for n in 0..400u32 {
        a.hub.send("b", [n.to_le_bytes(); 4096].concat());
    }
    let Node { hub, transport } = a;
    transport.stop(Instant::now() + DEADLINE).await;
    UdpSocket::bind(addr).expect("the port is free");
    hub.read(|record| {
        assert_eq!(record.closed.len(), 1);
        assert_eq!(record.closed[0].1, "this node is stopping");
    });
    b.hub.until("told", |record| record.closed.len() == 1).await;
    b.hub.read(|record| {
        assert_eq!(record.closed[0].1, "the peer is stopping");
        assert_eq!(record.received.len(), 400);
        assert!(record.received.iter().zip(0u32..).all(|((_, frame), n)| frame[..4] == n.to_le_bytes()));
    });
    // One that nobody is connected to stops as well.
    let addr = c.addr();
    c.transport.stop(Instant::now() + DEADLINE).await;
    UdpSocket::bind(addr).expect("the port is free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stop_does_not_wait_for_a_peer_beyond_its_deadline() {
    let (cluster, names) = (Cluster::new(1), Names::default());
    let a = Node::start("a", cluster.identity("a"), &names, &[]);
    let b = Node::start("b", cluster.identity("b"), &names, &a.seed());
    let addr = a.addr();
    a.hub.until("b", |record| record.connected("b")).await;
    let held = b.hub.hold();
    for _ in 0..400 {
        a.hub.send("b", vec![0; 16 * 1024]);
    }
    let Node { hub, transport } = a;
    let stopped = transport.stop(Instant::now() + Duration::from_millis(200));
    tokio::time::timeout(DEADLINE, stopped).await.expect("b takes nothing, and still it ends");
    UdpSocket::bind(addr).expect("the port is free");
    assert_eq!(hub.read(|record| record.closed[0].1.clone()), "this node is stopping");
    drop(held);
    b.hub.until("told", |record| record.closed.len() == 1).await;
    let why = b.hub.read(|record| record.closed[0].1.clone());
    assert_eq!(why, "the peer closed it: this node is stopping");
}

#[test]
fn a_killed_node_that_returns_is_noticed_by_its_peers_at_once() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (cluster, names) = (Cluster::new(1), Names::default());
    let (identity, steady, first) = (cluster.identity("a"), runtime(), runtime());

    let a = first.block_on(async { Node::start("a", identity.clone(), &names, &[]) });
    let (addr, seeds) = (a.addr(), a.seed());
    let b = steady.block_on(async { Node::start("b", cluster.identity("b"), &names, &seeds) });
    steady.block_on(b.hub.until("a", |record| record.connected("a")));
    // Its tasks vanish with their runtime: no goodbye, as after kill -9.
    first.shutdown_background();
    drop(a);

    let second = runtime();
    let a = second.block_on(async {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match Node::start_at("a", identity.clone(), &names, &[], addr) {
                Ok(node) => return node,
                Err(e) => assert!(Instant::now() < deadline, "the port is not free: {e}"),
            }
            tokio::task::yield_now().await;
        }
    });
    steady.block_on(async {
        b.hub.until("the old connection is gone", |record| !record.closed.is_empty()).await;
        let why = b.hub.read(|record| record.closed[0].1.clone());
        assert_eq!(why, "the peer lost it, most likely by a restart");
        b.hub.until("there again", |record| record.accepted == 2).await;
        exchange((&a.hub, "a"), (&b.hub, "b"), "after the restart").await;
    });
}
